import mysql2 from "mysql2/promise";
import type { Draft } from "../../src/core/event.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { mysql, type MysqlConnection, type MysqlOptions, type MysqlPool, type MysqlStore } from "../../src/stores/mysql/index.ts";

let made = 0;

/** A store in a database of its own, and what a test does beside it. */
export interface MysqlPlace extends AsyncDisposable {
  readonly store: MysqlStore;
  readonly pool: mysql2.Pool;
  /** The same tables, with other options. */
  open(options?: Partial<MysqlOptions>): MysqlStore;
  sql<T extends object>(text: string): Promise<T[]>;
  add(...drafts: Draft[]): Promise<void>;
}

export async function mysqlPlaceOn(url: (database?: string) => string, options: Partial<MysqlOptions> = {}): Promise<MysqlPlace> {
  const database = `keep_${process.pid}_${++made}`;
  const root = await mysql2.createConnection(url());
  await root.query(`CREATE DATABASE ${database}`);
  await root.end();
  const pool = mysql2.createPool({ uri: url(database), connectionLimit: 20 });
  const store = mysql({ pool, ...options });
  const outbox = createOutbox({ store });
  return {
    store,
    pool,
    open: (more = {}) => mysql({ pool, ...more }),
    sql: async <T extends object>(text: string) => (await pool.query(text))[0] as T[],
    add: async (...drafts) => void (await store.transactor.transaction(pool, (tx: MysqlConnection) => outbox.add(tx, drafts))),
    async [Symbol.asyncDispose]() {
      // A server that was killed leaves files that it does not remove; they go with its folder.
      await pool.query(`DROP DATABASE IF EXISTS ${database}`).catch(() => undefined);
      await pool.end();
    },
  };
}

/** The pool as it is until a statement that the test picks: then the connection breaks, and so does every one after it. */
export function breaking(pool: mysql2.Pool, at: (sql: string) => boolean): { readonly pool: MysqlPool; readonly broke: () => boolean } {
  let broken = false;
  const wrapped = {
    async getConnection() {
      const connection = await pool.getConnection();
      const query = async (given: string | { sql: string }): Promise<unknown> => {
        broken ||= at(typeof given === "string" ? given : given.sql);
        if (!broken) return connection.query(given as string);
        connection.destroy();
        throw Object.assign(new Error("the link broke"), { code: "PROTOCOL_CONNECTION_LOST", fatal: true });
      };
      return { query, execute: query, release: () => connection.release(), destroy: () => connection.destroy() };
    },
    end: () => Promise.resolve(),
  };
  return { pool: wrapped as unknown as MysqlPool, broke: () => broken };
}
