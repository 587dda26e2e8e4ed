import { WaybillError } from "../../core/errors.ts";

/**
 * The part of a synchronous SQLite client that Waybill uses. better-sqlite3, libsql and node:sqlite have it;
 * any other that does can be given as `open`.
 */
export interface SqliteDatabase {
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
  close(): void;
}

export interface SqliteStatement {
  run(...values: SqliteValue[]): { changes: number | bigint };
  all(...values: SqliteValue[]): unknown[];
}

export type SqliteValue = string | number | bigint | null | Uint8Array;

export type OpenSqlite = (path: string) => SqliteDatabase;

/** The first client library that is available: node:sqlite (Node 22.13 and later), better-sqlite3, libsql. */
export async function defaultDriver(): Promise<OpenSqlite> {
  return (await nodeSqlite()) ?? (await constructorOf("better-sqlite3")) ?? (await constructorOf("libsql")) ?? missing();
}

async function nodeSqlite(): Promise<OpenSqlite | null> {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major < 22 || (major === 22 && minor < 13)) return null;
  const name: string = "node:sqlite";
  const { DatabaseSync } = (await import(name)) as { DatabaseSync: new (path: string) => SqliteDatabase };
  return (path) => new DatabaseSync(path);
}

async function constructorOf(name: string): Promise<OpenSqlite | null> {
  try {
    const { default: Database } = (await import(name)) as { default: new (path: string) => SqliteDatabase };
    return (path) => new Database(path);
  } catch {
    return null; // not installed, or built for another version of Node: the next one may do
  }
}

function missing(): never {
  throw new WaybillError(
    "DRIVER_MISSING",
    "no SQLite client is installed: npm install libsql (or better-sqlite3), or run on Node 22.13 or later, which has its own",
  );
}

/** SQLite's own result code, whatever the client calls it; 0 when the error is not SQLite's. */
export function resultCode(error: unknown): number {
  if (typeof error !== "object" || error === null) return 0;
  const { errcode, rawCode, code } = error as { errcode?: unknown; rawCode?: unknown; code?: unknown };
  const extended = typeof errcode === "number" ? errcode : typeof rawCode === "number" ? rawCode : null;
  if (extended !== null) return extended & 0xff;
  const [, name] = typeof code === "string" ? (/^SQLITE_([A-Z]+)/.exec(code) ?? []) : [];
  return (name !== undefined && codes[name]) || 0;
}

const codes: Record<string, number> = {
  ERROR: 1,
  BUSY: 5,
  LOCKED: 6,
  NOMEM: 7,
  READONLY: 8,
  IOERR: 10,
  CORRUPT: 11,
  FULL: 13,
  CANTOPEN: 14,
  TOOBIG: 18,
  CONSTRAINT: 19,
  NOTADB: 26,
};

export const isBusy = (error: unknown): boolean => [codes["BUSY"], codes["LOCKED"]].includes(resultCode(error));

/** The value is larger than this process or SQLite can hold: the row is to blame, not the database. */
export const isTooLarge = (error: unknown): boolean =>
  error instanceof RangeError || [codes["NOMEM"], codes["TOOBIG"]].includes(resultCode(error));

/** Explains errors that a user can act on, and passes every other error on. */
export function explain(error: unknown, path: string): Error {
  const why = error instanceof Error ? error.message : String(error);
  switch (resultCode(error)) {
    case 5:
    case 6:
      return new WaybillError("STORE_UNAVAILABLE", `${path} stayed locked by another process for too long`, { cause: error });
    case 8:
      return new WaybillError("STORE_READ_ONLY", `${path} cannot be written: ${why}; let this user write to the file and its folder`, {
        cause: error,
      });
    case 11:
    case 26:
      return new WaybillError("STORE_CORRUPT", `${path} is not a usable database: ${why}`, { cause: error });
    case 10:
    case 13:
    case 14:
      return new WaybillError("STORE_UNAVAILABLE", `${path} cannot be used: ${why}`, { cause: error });
    default:
      if (ours.test(why))
        return new WaybillError(
          "NOT_MIGRATED",
          `${path} does not have Waybill's tables as this code needs them (${why}): run waybill migrate`,
          {
            cause: error,
          },
        );
      return error instanceof Error ? error : new Error(why);
  }
}

/** Only Waybill's tables: `waybill migrate` does not create a handler's own. */
const ours = /^no such table: (main\.)?(outbox|inbox|outbox_events|waybill_\w+)$/;

/**
 * Whether a transaction is open on this handle. Some clients report it. With the others, a BEGIN is refused inside a transaction.
 * A closed handle throws: `prepare` comes first because libsql ends the process when a closed handle is asked.
 */
export function inTransaction(db: SqliteDatabase): boolean {
  db.prepare("SELECT 1");
  const { inTransaction: flag, isTransaction } = db as { inTransaction?: unknown; isTransaction?: unknown };
  if (typeof flag === "boolean") return flag;
  if (typeof isTransaction === "boolean") return isTransaction;
  try {
    db.exec("BEGIN");
  } catch {
    return true;
  }
  db.exec("ROLLBACK");
  return false;
}
