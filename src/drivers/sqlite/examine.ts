import { statfsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Rule } from "../../contracts/doctor.ts";
import { walIsSafe, type Statements } from "./connection.ts";

/** What can be known of a file, and of our connection to it. */
export interface FileAnswers {
  /** The SQLite library's version. */
  readonly version: string;
  readonly journal: string;
  /** 0 to 3: OFF, NORMAL, FULL, EXTRA. */
  readonly synchronous: number;
  /** Linux's magic number for the type of file system; null on other systems. */
  readonly fileSystem: number | null;
}

export function readFile(statements: Statements, path: string): FileAnswers {
  return {
    version: String(statements.get("SELECT sqlite_version() AS version")?.["version"]),
    journal: String(statements.get("PRAGMA journal_mode")?.["journal_mode"]),
    synchronous: Number(statements.get("PRAGMA synchronous")?.["synchronous"]),
    // Of the folder: opening and closing the file itself would drop the locks that SQLite has on it.
    fileSystem: process.platform === "linux" ? statfsSync(dirname(resolve(path))).type : null,
  };
}

const levels = ["OFF", "NORMAL", "FULL", "EXTRA"];

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

export const fileRules: readonly Rule<FileAnswers>[] = [
  {
    setting: "journal_mode",
    badWhen: "WAL on a version with the reset fault, or none",
    breaks: "L",
    remedy: "use `DELETE`, or WAL on a mended version",
    look({ version, journal }, { good, bad }) {
      const value = `${journal} (SQLite ${version})`;
      if (journal === "wal" && !walIsSafe(version))
        return bad(value, "This version's WAL mode can damage a file that several processes use (mended in 3.51.3, 3.50.7 and 3.44.6)", {
          remedy: "switch the file back with PRAGMA journal_mode = DELETE, or use a newer client",
        });
      if (journal === "memory" || journal === "off") return bad(value, "A crash in the middle of a transaction damages the file");
      return good(value, "A crash in the middle of a transaction leaves the file whole.");
    },
  },
  {
    setting: "synchronous",
    badWhen: "below `FULL` on Waybill's own connections. Doctor cannot see yours, and reports them as unknown",
    breaks: "L",
    remedy: "`PRAGMA synchronous = FULL`",
    look({ synchronous: level }, { good, bad }) {
      const value = levels[level] ?? String(level);
      if (level >= 2) return good(value, "What Waybill commits is on the disk.");
      return bad(value, "What is committed can be lost with the machine's power");
    },
  },
  {
    setting: "file system",
    badWhen: "in memory, or on a network. A container's own layer and FUSE are unknown",
    breaks: "LO",
    remedy: "put it on a disk of this machine",
    look({ fileSystem: type }, { good, bad, unknown }) {
      if (type === null) return unknown(null, "This system does not tell: the file must be on a disk of this machine, not on a network's.");
      const [name, nature] = kinds.get(type >>> 0) ?? [`0x${(type >>> 0).toString(16)}`, null];
      switch (nature) {
        case "memory":
          return bad(name, "The file is in memory, and goes with the machine's next start", { breaks: "L", remedy: "put it on a disk" });
        case "network":
          return bad(name, "Network file systems do not keep the locks that SQLite needs, and two writers damage the file", {
            remedy: "put it on a disk of this machine, or use a database server",
          });
        case "layer":
          return unknown(name, "If this is a container's own layer, the file goes with the container: put it on a volume.");
        case "behind":
          return unknown(name, "What is behind it cannot be seen: the file must be on a disk of this machine, not on a network's.");
        case null:
          return good(name, "It is none of those that lose a file or its locks.");
      }
    },
  },
];
