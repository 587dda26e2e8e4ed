import type { SqlTransaction } from "../../contracts/handle.ts";
import { show, WaybillError } from "../../core/errors.ts";
import { refuseLibrary } from "../../core/libraries.ts";
import { withoutValues, type MysqlConnection, type MysqlQuery } from "./driver.ts";
import { fill, type SqlValue } from "./values.ts";

/** The application's transaction: a connection of mysql2, or another library's transaction behind its handle. */
export type MysqlTransaction = MysqlConnection | SqlTransaction;

/** Rows as lists of values, in the order they were asked for: a connection may give them as objects or as lists. */
export type AskTransaction = (sql: string, values?: readonly SqlValue[]) => Promise<readonly (readonly unknown[])[]>;

/** The values are in the statement: no library has to pass them on, and none can misread them. */
export function askOf(tx: MysqlTransaction): AskTransaction {
  refuseLibrary(tx);
  const { query, promise, execute } = (tx ?? {}) as { query?: unknown; promise?: unknown; execute?: unknown };
  if (typeof query !== "function")
    throw new WaybillError(
      "NO_TRANSACTION",
      `outbox.add was given ${show(tx)} in place of a transaction: give it the connection that has begun one`,
    );
  // Connections of `mysql2` itself work with callbacks, and their `promise()` returns the one with promises.
  const handle = (typeof promise === "function" ? (Reflect.apply(promise, tx, []) as unknown) : tx) as MysqlTransaction;
  const isClient = typeof execute === "function";
  return async (sql, values = []) => {
    const filled = fill(sql, values);
    const asked: Promise<unknown> = isClient
      ? (handle as MysqlConnection).query({ sql: filled, ...plain })
      : (handle as SqlTransaction).query(filled, []);
    const result = await asked.catch((error: unknown) => {
      throw withoutValues(error, filled, sql);
    });
    const rows: unknown = Array.isArray(result) ? result[0] : (result as { rows?: unknown } | undefined)?.rows;
    return Array.isArray(rows) ? rows.map((row: unknown) => (Array.isArray(row) ? row : Object.values(row as object)) as unknown[]) : [];
  };
}

/** Whatever the connection is set to, rows come as lists of what the server sent. */
const plain = {
  typeCast: (field: { buffer(): Buffer | null }) => field.buffer(),
  rowsAsArray: true,
  nestTables: false,
  namedPlaceholders: false,
} satisfies Omit<MysqlQuery, "sql">;

export const textIn = (value: unknown): string => (value instanceof Uint8Array ? Buffer.from(value).toString("utf8") : String(value));
