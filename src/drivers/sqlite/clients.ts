import { realpathSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { WaybillError } from "../../core/errors.ts";
import type { SqliteDatabase } from "./driver.ts";

/**
 * Which client library has a file open in this process. A process has one set of locks on a file, and closing any handle drops them all:
 * two copies of SQLite that do not know of each other would lose committed transactions. So there is one map for the process, for all
 * stores and brokers.
 */
const open = new Map<string, { readonly client: unknown; handles: number }>();

/** Keeps refused handles: closing one, or letting it be garbage collected, would drop the locks of the other handles. */
const unused: SqliteDatabase[] = [];

/** Call it with every handle that is opened, and the function that it returns when the handle is closed. */
export function enter(path: string, db: SqliteDatabase): () => void {
  try {
    refuseOther(path, db);
  } catch (error) {
    unused.push(db);
    throw error;
  }
  const name = canonical(path);
  const entry = open.get(name) ?? { client: clientOf(db), handles: 0 };
  open.set(name, entry);
  entry.handles++;
  let left = false;
  return () => {
    if (left) return;
    left = true;
    if (--entry.handles === 0) open.delete(name);
  };
}

/** Refuses a handle of another client than the one that has the file open here. */
export function refuseOther(path: string, db: SqliteDatabase): void {
  const client = clientOf(db);
  const isOther = (entry: { readonly client: unknown } | undefined): boolean =>
    entry !== undefined && client !== Object && entry.client !== Object && entry.client !== client;
  // Resolving a path takes several system calls, and most processes have one client library.
  if (![...open.values()].some(isOther) || !isOther(open.get(canonical(path)))) return;
  throw new WaybillError(
    "DRIVER_UNFIT",
    `${path} is open in this process through two SQLite clients, which would drop each other's locks: give every sqlite() and embedded() the same one, such as open: (path) => new Database(path)`,
  );
}

/** A wrapper of the user's own is a plain object: the client library behind it cannot be seen. */
function clientOf(db: SqliteDatabase): unknown {
  return (Object.getPrototypeOf(db) as { constructor?: unknown } | null)?.constructor ?? Object;
}

function canonical(path: string): string {
  const absolute = resolve(path);
  try {
    return realpathSync(absolute);
  } catch {
    return join(realpathSync(dirname(absolute)), basename(absolute)); // the file does not exist before its first write
  }
}
