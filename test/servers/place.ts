import { chmodSync, chownSync, mkdtempSync, readFileSync, statfsSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { passable } from "../../scripts/servers.mjs";

/** Whom a server runs as. Empty when we are an ordinary user, and it runs as we do. */
export interface Account {
  readonly uid?: number;
  readonly gid?: number;
}

/** Database servers refuse to run as root, or should: then they run as the first of these users that exists. */
export function accountFor(...names: readonly string[]): Account {
  if (process.getuid?.() !== 0) return {};
  const users = new Map(
    readFileSync("/etc/passwd", "utf8")
      .split("\n")
      .map((line) => [line.split(":")[0], line.split(":")] as const),
  );
  for (const name of [...names, "nobody"]) {
    const user = users.get(name);
    if (user !== undefined) return { uid: Number(user[2]), gid: Number(user[3]) };
  }
  throw new Error(`none of the users ${names.join(", ")} and nobody exists, and the server must not run as root`);
}

const shm = "/dev/shm";
const enough = 2 * 1024 ** 3;

/** A new folder that the account owns, in memory where there is room: flushing to disk is honest there, and cheap. */
export function ownFolder(name: string, account: Account): string {
  const parent = [shm, tmpdir(), "/var/tmp"].find((path) => roomy(path) && (account.uid === undefined || passable(path))) ?? tmpdir();
  const folder = mkdtempSync(join(parent, `waybill-${name}-`));
  chmodSync(folder, 0o755);
  if (account.uid !== undefined && account.gid !== undefined) chownSync(folder, account.uid, account.gid);
  return folder;
}

function roomy(path: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(path);
    return path !== shm || bavail * bsize > enough;
  } catch {
    return false;
  }
}

/**
 * A loopback port that nobody listens on, below those that the system gives to outgoing connections, and out of this worker's own part: else
 * somebody could take the port while its server is down.
 */
const portsEach = 1_500;
const share = Number(process.env["VITEST_POOL_ID"] ?? 0) % 10;
const given = new Set<number>();

export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 100; tries += 1) {
    const port = 15_000 + share * portsEach + Math.floor(Math.random() * portsEach);
    if (given.has(port) || !(await isFree(port))) continue;
    given.add(port);
    return port;
  }
  throw new Error(`no free loopback port was found between ${15_000 + share * portsEach} and ${15_000 + (share + 1) * portsEach}`);
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
