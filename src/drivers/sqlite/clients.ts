import { realpathSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { WaybillError } from "../../core/errors.ts";
import type { SqliteDatabase } from "./driver.ts";

/**
 * Which client has a file open here. A process has one set of locks on a file, and closing any handle drops them all:
 * two copies of SQLite that do not know of each other would lose committed transactions. So it is one for the process,
 * whatever stores and brokers there are.
 */
const open = new Map<string, { readonly client: unknown; handles: number }>();

/** Handles that were refused: closing one, or letting it be collected, would drop the locks of the others. */
const unused: SqliteDatabase[] = [];

/** To be called with every handle that is opened; the answer, when it is closed. */
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
  // To find out where a path leads takes several calls of the system, and most processes have one client.
  if (![...open.values()].some(isOther) || !isOther(open.get(canonical(path)))) return;
  throw new WaybillError(
    "DRIVER_UNFIT",
    `${path} is open in this process through two SQLite clients, which would drop each other's locks: give every sqlite() and embedded() the same one, such as open: (path) => new Database(path)`,
  );
}

/** A wrapper of the user's own is a plain object: what is behind it cannot be seen. */
function clientOf(db: SqliteDatabase): unknown {
  return (Object.getPrototypeOf(db) as { constructor?: unknown } | null)?.constructor ?? Object;
}

function canonical(path: string): string {
  const absolute = resolve(path);
  try {
    return realpathSync(absolute);
  } catch {
    return join(realpathSync(dirname(absolute)), basename(absolute)); // not there before its first write
  }
}
