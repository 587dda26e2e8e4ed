import { readFileSync } from "node:fs";
import mysql2 from "mysql2/promise";

/** The statements that made the tables of version 1, as `waybill migrate --print` gave them. */
export const statements: readonly string[] = readFileSync(new URL("mysql-v1.sql", import.meta.url), "utf8")
  .split(/DELIMITER (?:\/\/|;)\n?/)
  .flatMap((part) => (part.trimEnd().endsWith("//") ? [part.trimEnd().slice(0, -2)] : part.split(/;\n/)))
  .filter((sql) => sql.trim() !== "");

let made = 0;

/** A database with the tables of version 1; the pool is the caller's to end. */
export async function version1(url: (database?: string) => string, options: mysql2.PoolOptions = {}): Promise<mysql2.Pool> {
  const database = `version_1_${++made}`;
  const root = await mysql2.createConnection(url());
  await root.query(`CREATE DATABASE ${database}`);
  await root.end();
  const pool = mysql2.createPool({ uri: url(database), ...options });
  for (const sql of statements) await pool.query(sql);
  return pool;
}
