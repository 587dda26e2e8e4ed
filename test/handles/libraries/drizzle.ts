import { sql } from "drizzle-orm";
import { drizzle as onMysql2 } from "drizzle-orm/mysql2";
import { drizzle as onNodePostgres } from "drizzle-orm/node-postgres";
import { drizzle as onPostgresJs } from "drizzle-orm/postgres-js";
import { createPool } from "mysql2/promise";
import pg from "pg";
import postgres from "postgres";
import { fromDrizzle } from "../../../src/outbox/handles/index.ts";
import { adapter } from "../adapter.ts";

export const drizzleOnNodePostgres = adapter({
  library: "Drizzle (node-postgres)",
  database: "PostgreSQL",
  handle: fromDrizzle,
  refuses: { none: true, ended: true },
  async open(url) {
    const pool = new pg.Pool({ connectionString: url, max: 5 });
    pool.on("error", () => undefined);
    pool.on("connect", (client) => client.on("error", () => undefined));
    const db = onNodePostgres(pool);
    type Tx = Parameters<Parameters<typeof db.transaction>[0]>[0];
    return {
      db,
      none: { "the database": db, "the pool": pool },
      transaction: (work) => db.transaction(work),
      savepoint: (tx: Tx, work) => tx.transaction(work),
      run: (tx: Tx, text) => tx.execute(sql.raw(text)),
      close: () => pool.end(),
    };
  },
});

export const drizzleOnPostgresJs = adapter({
  library: "Drizzle (postgres.js)",
  database: "PostgreSQL",
  handle: fromDrizzle,
  refuses: { none: true, ended: false },
  async open(url) {
    const client = postgres(url, { max: 5, onnotice: () => undefined });
    const db = onPostgresJs(client);
    type Tx = Parameters<Parameters<typeof db.transaction>[0]>[0];
    return {
      db,
      none: { "the database": db, "the client": client },
      transaction: (work) => db.transaction(work),
      savepoint: (tx: Tx, work) => tx.transaction(work),
      run: (tx: Tx, text) => tx.execute(sql.raw(text)),
      close: () => client.end({ timeout: 1 }),
    };
  },
});

export const drizzleOnMysql2 = adapter({
  library: "Drizzle (mysql2)",
  database: "MariaDB",
  handle: fromDrizzle,
  refuses: { none: true, ended: true },
  async open(uri) {
    const pool = createPool({ uri, connectionLimit: 5 });
    const db = onMysql2(pool);
    type Tx = Parameters<Parameters<typeof db.transaction>[0]>[0];
    return {
      db,
      none: { "the database": db, "the pool": pool },
      transaction: (work) => db.transaction(work),
      savepoint: (tx: Tx, work) => tx.transaction(work),
      run: (tx: Tx, text) => tx.execute(sql.raw(text)),
      close: () => pool.end(),
    };
  },
});
