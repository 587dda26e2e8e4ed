import { types } from "node:util";
import type { SqliteRow } from "./connection.ts";
import { inTransaction, type SqliteDatabase, type SqliteStatement, type SqliteValue } from "./driver.ts";

export interface SqliteStep {
  readonly sql: string;
  readonly values: readonly SqliteValue[];
  readonly reads: boolean;
}

/**
 * Statements of the application's connections: preparing an insert takes longer than running it. They are held weakly, because libsql keeps
 * the file of a closed handle open as long as one of its statements exists.
 */
const statements = new WeakMap<object, Map<string, WeakRef<SqliteStatement>>>();
/** Statements kept per connection. The SQL of an add differs by its number of rows. */
const keptEach = 8;

/** One statement, on the connection that the handle has now. */
export function runKept(db: SqliteDatabase, { sql, values, reads }: SqliteStep): readonly SqliteRow[] {
  const kept = statements.get(nativeOf(db) ?? db);
  const known = kept?.get(sql)?.deref();
  kept?.delete(sql); // while it runs, a function of the application's in a trigger may add too; and libsql leaves what failed half begun
  const run = (statement: SqliteStatement): readonly SqliteRow[] => {
    const rows = reads ? (statement.all(...values) as SqliteRow[]) : [];
    if (!reads) statement.run(...values);
    keep(db, sql, statement);
    return rows;
  };
  try {
    if (known !== undefined) return run(known);
  } catch (error) {
    if (!isFinalized(error) || !inTransaction(db)) throw error;
  }
  return run(db.prepare(sql));
}

function keep(db: SqliteDatabase, sql: string, statement: SqliteStatement): void {
  const connection = nativeOf(db) ?? (isConnection(db, statement) ? db : null);
  if (connection === null) return;
  let kept = statements.get(connection);
  if (kept === undefined) statements.set(connection, (kept = new Map<string, WeakRef<SqliteStatement>>()));
  if (kept.size >= keptEach) kept.clear();
  kept.set(sql, new WeakRef(statement));
}

/** libsql's own connection behind its handle. */
function nativeOf(db: SqliteDatabase): object | null {
  const { db: native } = db as { db?: unknown };
  return !types.isProxy(db) && types.isExternal(native) ? (native as object) : null;
}

/**
 * Whether the handle is the connection itself. The application's own wrapper, or a Proxy, may have another connection behind it at each
 * call. A statement of the previous connection would write outside the transaction.
 */
function isConnection(db: SqliteDatabase, statement: SqliteStatement): boolean {
  if (types.isProxy(db) || types.isProxy(statement)) return false;
  const { database } = statement as { database?: unknown }; // of better-sqlite3
  return database === db || isNodeSqlite(db);
}

function isNodeSqlite(db: SqliteDatabase): boolean {
  const prototype = Object.getPrototypeOf(db) as { readonly constructor?: { readonly name?: unknown } } | null;
  if (prototype?.constructor?.name !== "DatabaseSync") return false; // where it is not in use, asking for the module would print a warning
  const { getBuiltinModule } = process as {
    getBuiltinModule?: (name: string) => { readonly DatabaseSync?: { readonly prototype: object } };
  };
  return getBuiltinModule?.("node:sqlite")?.DatabaseSync?.prototype === prototype;
}

/** node:sqlite can close a handle and open it again, which finalizes its statements. */
function isFinalized(error: unknown): boolean {
  return (error as { readonly code?: unknown } | null)?.code === "ERR_INVALID_STATE";
}
