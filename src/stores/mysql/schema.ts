import type { Schema } from "../../contracts/store.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { isAtLeast } from "../../core/finding.ts";
import { fingerprintOf, refuseOther, type TablesFound } from "../../core/tables.ts";
import { tables, type TableName } from "../kit/names.ts";
import { checkTables, type PartitionUnit } from "../kit/schema.ts";
import type { Connection, Run, MysqlServer, MysqlSession } from "./connection.ts";
import { errnoOf } from "./driver.ts";
import { grants } from "./grants.ts";
import { refuseOtherLayout } from "./layout.ts";
import { namesOf, type Names } from "./names.ts";
import { firstPartitions } from "./partitions.ts";
import { isSet, numberOf, textOf } from "./rows.ts";
import { meta, version1 } from "./schema.sql.ts";

/** The statements that lead to each version from the one before. A released version never changes. */
const versions = [version1];

const defaults = namesOf(undefined);
/** The fingerprint of each version. */
export const fingerprints = versions.map((version) =>
  fingerprintOf(meta(defaults), ...version(defaults, null), ...version(defaults, "day")),
);

/** How long a change of the tables waits for the statements that are using them. */
const lockSeconds = 5;
/** How long one migration waits for another. */
const turnSeconds = 60;
/** A trigger keeps the mode that it was created in, where an empty text might be NULL, or a backslash mean something else. */
const mode = "STRICT_ALL_TABLES";

export function createSchema(connection: Connection, n: Names, clock: Clock, asked: PartitionUnit | null): Schema {
  const { place } = connection;
  return {
    migrate: () =>
      connection.session((session) =>
        withTurn(session, place, async () => {
          refuseOld(session.server, place);
          const found = await tablesIn(session.run, n);
          await refuseForeign(session.run, n, place, found);
          await refuseOtherLayout(session.run, n, place, asked);
          const applied = found.version === fingerprints.length ? [] : await apply(session.run, place, n, asked, found.version);
          await firstPartitions(session, n, clock);
          return applied;
        }),
      ),
    print: () => printed(n, asked),
    grants: () => printedGrants(n, asked),
    check: async () => {
      checkTables(place, await tablesIn(connection.run, n), fingerprints, "mysql://…");
      await refuseOtherLayout(connection.run, n, place, asked);
    },
  };
}

/** One migration at a time. Other sessions must not queue for long behind a change of the tables that itself waits for a lock. */
async function withTurn<T>({ run }: MysqlSession, place: string, work: () => Promise<T>): Promise<T> {
  const name = "CONCAT('waybill.migrate.', CRC32(COALESCE(DATABASE(), X'')))";
  const [turn] = await run(`SELECT GET_LOCK(${name}, ${turnSeconds}) AS mine, @@lock_wait_timeout AS patience, @@sql_mode AS mode`);
  if (!isSet(turn, "mine"))
    throw new WaybillError("STORE_UNAVAILABLE", `${place} is being migrated by somebody else, who took longer than ${turnSeconds} s`);
  try {
    await run(`SET SESSION lock_wait_timeout = ${lockSeconds}, sql_mode = '${mode}'`);
    return await work();
  } finally {
    await run(`SET SESSION lock_wait_timeout = ${numberOf(turn!, "patience")}, sql_mode = ?`, [textOf(turn!, "mode")]);
    await run(`DO RELEASE_LOCK(${name})`);
  }
}

/** Before anything is written. Tables of ours without a version may be the user's own, or what an earlier build began. */
async function refuseForeign(run: Run, n: Names, place: string, found: TablesFound): Promise<void> {
  refuseOther(place, found, fingerprints);
  if (found.version > 0 || found.fingerprint === fingerprints[0]) return;
  for (const table of ["outbox", "inbox", "events", ...tables] as const) {
    if (table === "meta" || !(await isThere(run, n, table))) continue;
    throw new WaybillError(
      "SCHEMA_UNRELEASED",
      `${place} has a table or view ${n.plain(table)} that no released version of Waybill made: choose other names (schema, names), ` +
        "or, if a build of Waybill was cut off while it made it, drop what it made and migrate again",
    );
  }
}

async function isThere(run: Run, n: Names, table: TableName): Promise<boolean> {
  try {
    await run(`SELECT 1 FROM ${n[table]} LIMIT 0`);
    return true;
  } catch (error) {
    if (isMissing(error, n)) return false;
    throw error;
  }
}

async function apply(run: Run, place: string, n: Names, asked: PartitionUnit | null, from: number): Promise<readonly number[]> {
  if (n.schema !== null && (await run("SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?", [n.schema])).length === 0)
    await run(`CREATE DATABASE IF NOT EXISTS ${n.quotedSchema}`);
  for (const sql of steps(n, asked, from)) {
    const trigger = triggerIn(sql, n);
    if (trigger !== null && (await hasTrigger(run, n, trigger))) continue;
    try {
      await run(sql);
    } catch (error) {
      if (errnoOf(error) !== 1419) throw error;
      throw new WaybillError(
        "UNSUPPORTED",
        `${place} lets nobody without SUPER create a trigger while it writes a binary log: set log_bin_trust_function_creators = 1, or migrate as such a user`,
        { cause: error },
      );
    }
  }
  return versions.map((_, at) => at + 1).slice(from);
}

/** What leads from version `from` to this one. The version is written last, once everything else is there. */
const steps = (n: Names, asked: PartitionUnit | null, from: number): readonly string[] => [
  ...(from === 0 ? [meta(n), `INSERT IGNORE INTO ${n.meta} (id, version, fingerprint) VALUES (1, 0, '${fingerprints[0]!}')`] : []),
  ...versions
    .slice(from)
    .flatMap((version, at) => [
      ...version(n, asked),
      `UPDATE ${n.meta} SET version = ${from + at + 1}, fingerprint = '${fingerprints[from + at]!}' WHERE id = 1`,
    ]),
];

/** Not every server has CREATE TRIGGER IF NOT EXISTS. */
const triggerIn = (sql: string, n: Names): "use_key" | "guard" | null =>
  (["use_key", "guard"] as const).find((each) => sql.startsWith(`CREATE TRIGGER ${n[each]} `)) ?? null;

async function hasTrigger(run: Run, n: Names, trigger: "use_key" | "guard"): Promise<boolean> {
  const found = await run(
    "SELECT 1 AS found FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = COALESCE(?, DATABASE()) AND TRIGGER_NAME = ?",
    [n.schema, n.plain(trigger)],
  );
  return found.length > 0;
}

/** MariaDB has SKIP LOCKED and JSON_TABLE from 10.6 on. Of MySQL, which has the collation from 8.0.17 on, nothing before 8.0.19 was tried. */
const least = { mariadb: "10.6", mysql: "8.0.19" } as const;
export const leastVersion = (mariadb: boolean): string => (mariadb ? least.mariadb : least.mysql);
export const needed = `Waybill needs MariaDB ${least.mariadb} or MySQL ${least.mysql}, or later`;

export function refuseOld({ version, mariadb }: Pick<MysqlServer, "version" | "mariadb">, place: string): void {
  if (!isAtLeast(version.replace(/^5\.5\.5-/, ""), leastVersion(mariadb)))
    throw new WaybillError("UNSUPPORTED", `${place} is ${version}: ${needed}`);
}

function printed(n: Names, asked: PartitionUnit | null): string {
  return [
    "-- For MariaDB and MySQL. DDL commits by itself: if it is cut off, `waybill migrate` goes on from there.",
    "SET @waybill_mode = @@SESSION.sql_mode, @waybill_wait = @@SESSION.lock_wait_timeout;",
    `SET SESSION sql_mode = '${mode}', lock_wait_timeout = ${lockSeconds};`,
    ...(n.schema === null ? [] : [`CREATE DATABASE IF NOT EXISTS ${n.quotedSchema};`]),
    ...steps(n, asked, 0).map((sql) => (triggerIn(sql, n) === null ? `${sql};` : `DELIMITER //\n${sql} //\nDELIMITER ;`)),
    "SET SESSION sql_mode = @waybill_mode, lock_wait_timeout = @waybill_wait;",
    "",
  ].join("\n");
}

const printedGrants = (n: Names, asked: PartitionUnit | null): string =>
  [
    "-- The least that each role needs, for an administrator of the server. The names of the roles are examples.",
    ...grants(n, asked !== null).map((grant) => `${grant};`),
    "",
  ].join("\n");

/** Version 0 where there are no tables, and with a fingerprint where a migration has begun to make them. */
export async function tablesIn(run: Run, n: Names): Promise<TablesFound> {
  try {
    const [row] = await run(`SELECT version, fingerprint FROM ${n.meta}`);
    return row === undefined
      ? { version: 0, fingerprint: null }
      : { version: Number(textOf(row, "version")), fingerprint: textOf(row, "fingerprint") };
  } catch (error) {
    if (isMissing(error, n)) return { version: 0, fingerprint: null };
    if (errnoOf(error) !== 1054) throw error;
    const [row] = await run(`SELECT version FROM ${n.meta}`); // of an early build, which wrote no fingerprint
    return { version: row === undefined ? 0 : Number(textOf(row, "version")), fingerprint: null };
  }
}

/** There is no such table, or no such database, which `migrate` creates where it was named. */
const isMissing = (error: unknown, n: Names): boolean => errnoOf(error) === 1146 || (errnoOf(error) === 1049 && n.schema !== null);
