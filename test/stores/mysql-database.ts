import mysql2 from "mysql2/promise";
import { mysql, type MysqlOptions } from "../../src/stores/mysql/index.ts";

let made = 0;

/** An empty database; the pool is the caller's to end. */
export async function emptyDatabase(url: (database?: string) => string, options: mysql2.PoolOptions = {}): Promise<mysql2.Pool> {
  const database = `made_${++made}`;
  const root = await mysql2.createConnection(url());
  await root.query(`CREATE DATABASE ${database}`);
  await root.end();
  return mysql2.createPool({ uri: url(database), ...options });
}

/** The same, with Waybill's tables. */
export async function migrated(url: (database?: string) => string, options: Omit<MysqlOptions, "url" | "pool"> = {}): Promise<mysql2.Pool> {
  const pool = await emptyDatabase(url);
  await mysql({ pool, ...options }).schema.migrate();
  return pool;
}
