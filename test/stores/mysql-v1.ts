import { readFileSync } from "node:fs";
import mysql2 from "mysql2/promise";

/** The statements that made the tables of that version, as `waybill migrate --print` gave them. */
const statementsOf = (version: number): readonly string[] =>
  readFileSync(new URL(`mysql-v${version}.sql`, import.meta.url), "utf8")
    .split(/DELIMITER (?:\/\/|;)\n?/)
    .flatMap((part) => (part.trimEnd().endsWith("//") ? [part.trimEnd().slice(0, -2)] : part.split(/;\n/)))
    .filter((sql) => sql.trim() !== "");
export const statements = statementsOf(1);

let made = 0;

export const version1 = (url: (database?: string) => string, options: mysql2.PoolOptions = {}): Promise<mysql2.Pool> =>
  tablesOf(1, url, options);

/** A database with the tables of an earlier version; the pool is the caller's to end. */
export async function tablesOf(
  version: number,
  url: (database?: string) => string,
  options: mysql2.PoolOptions = {},
): Promise<mysql2.Pool> {
  const database = `version_${version}_${++made}`;
  const root = await mysql2.createConnection(url());
  await root.query(`CREATE DATABASE ${database}`);
  await root.end();
  const pool = mysql2.createPool({ uri: url(database), ...options });
  for (const sql of statementsOf(version)) await pool.query(sql);
  return pool;
}
