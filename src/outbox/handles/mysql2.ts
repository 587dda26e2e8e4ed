import type { Begins } from "../../contracts/handle.ts";
import { lend, lending } from "../../core/lend.ts";
import { handle, isMethod, noTransaction } from "./handle.ts";
import { rowsOf } from "./result.ts";

/** A connection of `mysql2/promise`, of a pool or not. */
export interface Mysql2Transaction {
  query(sql: string): Promise<readonly unknown[]>;
  execute(sql: string): Promise<readonly unknown[]>;
  beginTransaction(): Promise<void>;
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

/** A pool, or a connection of its own. */
export type Mysql2Db = Mysql2Transaction | { getConnection(): Promise<Mysql2Transaction> };

interface Mysql2Begins extends Begins {
  readonly tx: this["db"] extends { getConnection(): Promise<infer Connection> } ? Connection : this["db"];
}

/** The transaction of a `mysql2` connection, between its START TRANSACTION and its COMMIT. Only the server knows whether one is open. */
export const fromMysql2 = handle<Mysql2Db, Mysql2Transaction, Mysql2Begins>({
  name: "mysql2",
  owns: ({ query }) => isMethod(query),
  open(connection) {
    if (isPool(connection)) throw noTransaction("a mysql2 pool was given, whose statements each commit by themselves");
    const run = connection as unknown as Record<"query" | "execute", (sql: string, values: readonly unknown[]) => Promise<unknown>>;
    // With values, a prepared statement: `query` would write the values into the text in place of the placeholders.
    return async (sql, values) => ({ rows: rowsOf(await (values.length === 0 ? run.query(sql, []) : run.execute(sql, values))) });
  },
  isInside: (db) => !isPool(db) && isInside(db), // a second START TRANSACTION would commit the open one
  lend: (connection) => lend(connection),
  begin: (db, work) => (isPool(db) ? onPool(db, work) : run(db, work)),
});

function isPool(db: Mysql2Db): db is Exclude<Mysql2Db, Mysql2Transaction> {
  return "getConnection" in db;
}

async function onPool<T>(pool: Exclude<Mysql2Db, Mysql2Transaction>, work: (tx: Mysql2Transaction) => Promise<T>): Promise<T> {
  const connection = (await pool.getConnection()) as Mysql2Transaction & { release(): void; destroy(): void };
  try {
    const result = await run(connection, work);
    connection.release();
    return result;
  } catch (error) {
    connection.destroy(); // the connection's state is unknown
    throw error;
  }
}

async function run<T>(connection: Mysql2Transaction, work: (tx: Mysql2Transaction) => Promise<T>): Promise<T> {
  await connection.beginTransaction();
  let result: T;
  try {
    result = await lending(connection, work);
  } catch (error) {
    await connection.rollback().catch(() => undefined);
    throw error;
  }
  await connection.commit();
  return result;
}

/** Outside a transaction, the server accepts a savepoint without an error, but the savepoint does not exist afterwards. */
async function isInside(connection: Mysql2Transaction): Promise<boolean> {
  await connection.query("SAVEPOINT waybill_probe");
  return connection.query("RELEASE SAVEPOINT waybill_probe").then(
    () => true,
    (error: { readonly errno?: number }) => {
      if (error.errno === 1305) return false;
      throw error;
    },
  );
}
