import { statfsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { bad, good, unknown, type Finding } from "../../core/finding.ts";
import { walIsSafe, type Statements } from "./connection.ts";

/** What can be known of a file, and of our connection to it. */
export interface FileAnswers {
  /** Of the library. */
  readonly version: string;
  readonly journal: string;
  /** 0 to 3: OFF, NORMAL, FULL, EXTRA. */
  readonly synchronous: number;
  /** The number by which Linux knows the kind of file system; null on other systems. */
  readonly fileSystem: number | null;
}

export function readFile(statements: Statements, path: string): FileAnswers {
  return {
    version: String(statements.get("SELECT sqlite_version() AS version")?.["version"]),
    journal: String(statements.get("PRAGMA journal_mode")?.["journal_mode"]),
    synchronous: Number(statements.get("PRAGMA synchronous")?.["synchronous"]),
    // Of the folder: whoever opens and closes the file itself drops the locks that SQLite has on it.
    fileSystem: process.platform === "linux" ? statfsSync(dirname(resolve(path))).type : null,
  };
}

export const fileRules: readonly ((answers: FileAnswers) => Finding)[] = [journal, synchronous, fileSystem];

function journal({ version, journal: mode }: FileAnswers): Finding {
  const value = `${mode} (SQLite ${version})`;
  if (mode === "wal" && !walIsSafe(version))
    return bad(
      "journal_mode",
      value,
      "L",
      "This version's WAL mode can damage a file that several processes use (mended in 3.51.3, 3.50.7 and 3.44.6): switch the file back with PRAGMA journal_mode = DELETE, or use a newer client.",
    );
  if (mode === "memory" || mode === "off")
    return bad(
      "journal_mode",
      value,
      "L",
      "A crash in the middle of a transaction damages the file: use DELETE, or WAL on a mended version.",
    );
  return good("journal_mode", value, "A crash in the middle of a transaction leaves the file whole.");
}

const levels = ["OFF", "NORMAL", "FULL", "EXTRA"];

function synchronous({ synchronous: level }: FileAnswers): Finding {
  const value = levels[level] ?? String(level);
  if (level >= 2) return good("synchronous", value, "What Waybill commits is on the disk.");
  return bad("synchronous", value, "L", "What is committed can be lost with the machine's power: PRAGMA synchronous = FULL.");
}

/** By the numbers of linux/magic.h. */
const kinds: ReadonlyMap<number, readonly [name: string, nature: "memory" | "network" | "layer" | "behind"]> = new Map([
  [0x01021994, ["tmpfs", "memory"]],
  [0x858458f6, ["ramfs", "memory"]],
  [0x6969, ["nfs", "network"]],
  [0x517b, ["smb", "network"]],
  [0xff534d42, ["cifs", "network"]],
  [0xfe534d42, ["smb2", "network"]],
  [0x00c36400, ["ceph", "network"]],
  [0x5346414f, ["afs", "network"]],
  [0x794c7630, ["overlay", "layer"]],
  [0x65735546, ["fuse", "behind"]],
  [0x01021997, ["9p", "behind"]],
]);

function fileSystem({ fileSystem: type }: FileAnswers): Finding {
  const setting = "file system";
  if (type === null)
    return unknown(setting, null, "This system does not tell: the file must be on a disk of this machine, not on a network's.");
  const [name, nature] = kinds.get(type >>> 0) ?? [`0x${(type >>> 0).toString(16)}`, null];
  switch (nature) {
    case "memory":
      return bad(setting, name, "L", "The file is in memory, and goes with the machine's next start: put it on a disk.");
    case "network":
      return bad(
        setting,
        name,
        "LO",
        "Network file systems do not keep the locks that SQLite needs, and two writers damage the file: put it on a disk of this machine, or use a database server.",
      );
    case "layer":
      return unknown(setting, name, "If this is a container's own layer, the file goes with the container: put it on a volume.");
    case "behind":
      return unknown(setting, name, "What is behind it cannot be seen: the file must be on a disk of this machine, not on a network's.");
    case null:
      return good(setting, name, "It is none of those that lose a file or its locks.");
  }
}
