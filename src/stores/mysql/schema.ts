import type { Schema } from "../../contracts/store.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { isAtLeast } from "../../core/finding.ts";
import type { Connection, Run, MysqlServer, MysqlSession } from "./connection.ts";
import { errnoOf } from "./driver.ts";
import { grants } from "./grants.ts";
import { checkFrom, checkVersion, refuseNewer, type PartitionUnit } from "../kit/schema.ts";
import { refuseOtherLayout } from "./layout.ts";
import type { Names } from "./names.ts";
import { firstPartitions } from "./partitions.ts";
import { isSet, numberOf, textOf } from "./rows.ts";
import { meta, migrations, type Collation, type TableStep } from "./tables.ts";

export const SCHEMA_VERSION = migrations.length;

/** How long a change of the tables waits for the statements that are using them. */
const lockSeconds = 5;
/** How long one migration waits for another. */
const turnSeconds = 60;

export function createSchema(connection: Connection, n: Names, clock: Clock, asked: PartitionUnit | null): Schema {
  const { place } = connection;
  return {
    migrate: () =>
      connection.session((session) =>
        withTurn(session, place, async () => {
          await refuseOtherLayout(session.run, n, place, asked);
          const applied = await migrate(session, place, n, asked);
          await firstPartitions(session, n, clock);
          return applied;
        }),
      ),
    print: (from = 0) => printed(n, asked, from),
    grants: () => printedGrants(n, asked),
    check: async () => {
      checkVersion(place, await versionOf(connection.run, n), SCHEMA_VERSION, "mysql://…");
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
    // A trigger keeps the sql_mode it was created in, where an empty text might be NULL, or a backslash mean something else.
    await run(`SET SESSION lock_wait_timeout = ${lockSeconds}, sql_mode = 'STRICT_ALL_TABLES'`);
    return await work();
  } finally {
    await run(`SET SESSION lock_wait_timeout = ${numberOf(turn!, "patience")}, sql_mode = ?`, [textOf(turn!, "mode")]);
    await run(`DO RELEASE_LOCK(${name})`);
  }
}

async function migrate({ run, server }: MysqlSession, place: string, n: Names, asked: PartitionUnit | null): Promise<readonly number[]> {
  refuseOld(server, place);
  const from = await versionOf(run, n);
  refuseNewer(place, from, SCHEMA_VERSION);
  if (from === SCHEMA_VERSION) return [];
  if (n.schema !== null && (await run("SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?", [n.schema])).length === 0)
    await run(`CREATE DATABASE IF NOT EXISTS ${n.quotedSchema}`);
  const applied: number[] = [];
  for (let version = from + 1; version <= SCHEMA_VERSION; version++) {
    for (const step of migrations[version - 1]!(n, collationOf(server), asked)) await apply(run, place, n, step);
    for (const step of meta(n, version)) await apply(run, place, n, step);
    applied.push(version);
  }
  return applied;
}

async function apply(run: Run, place: string, n: Names, { sql, trigger, done = [] }: TableStep): Promise<void> {
  if (trigger !== undefined && (await hasTrigger(run, n, trigger))) return;
  try {
    await run(sql);
  } catch (error) {
    if (done.includes(errnoOf(error) ?? 0)) return;
    if (errnoOf(error) !== 1419) throw error;
    throw new WaybillError(
      "UNSUPPORTED",
      `${place} lets nobody without SUPER create a trigger while it writes a binary log: set log_bin_trust_function_creators = 1, or migrate as such a user`,
      { cause: error },
    );
  }
}

async function hasTrigger(run: Run, n: Names, name: string): Promise<boolean> {
  const found = await run(
    "SELECT 1 AS found FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = COALESCE(?, DATABASE()) AND TRIGGER_NAME = ?",
    [n.schema, name],
  );
  return found.length > 0;
}

const collationOf = ({ mariadb }: Pick<MysqlServer, "mariadb">): Collation => (mariadb ? "utf8mb4_nopad_bin" : "utf8mb4_0900_bin");

/** MariaDB has SKIP LOCKED and JSON_TABLE from 10.6 on; MySQL has the collation from 8.0.17 on, and DROP CONSTRAINT from 8.0.19 on. */
const least = { mariadb: "10.6", mysql: "8.0.19" } as const;
export const leastVersion = (mariadb: boolean): string => (mariadb ? least.mariadb : least.mysql);
export const needed = `Waybill needs MariaDB ${least.mariadb} or MySQL ${least.mysql}, or later`;

export function refuseOld({ version, mariadb }: Pick<MysqlServer, "version" | "mariadb">, place: string): void {
  if (!isAtLeast(version.replace(/^5\.5\.5-/, ""), leastVersion(mariadb)))
    throw new WaybillError("UNSUPPORTED", `${place} is ${version}: ${needed}`);
}

function printed(n: Names, asked: PartitionUnit | null, from: number): string {
  const steps = checkFrom(migrations, from).flatMap((migration, at) => [
    ...migration(n, "utf8mb4_nopad_bin", asked),
    ...meta(n, from + at + 1),
  ]);
  return [
    "-- For MariaDB. On MySQL, put utf8mb4_0900_bin in place of utf8mb4_nopad_bin.",
    `SET SESSION lock_wait_timeout = ${lockSeconds};`,
    ...(n.schema === null ? [] : [`CREATE DATABASE IF NOT EXISTS ${n.quotedSchema};`]),
    ...steps.map(({ sql, trigger }) => (trigger !== undefined ? `DELIMITER //${sql} //\nDELIMITER ;` : `${sql};`)),
    "",
  ].join("\n");
}

const printedGrants = (n: Names, asked: PartitionUnit | null): string =>
  [
    "-- The least that each role needs, for an administrator of the server. The names of the roles are examples.",
    ...grants(n, asked !== null).map((grant) => `${grant};`),
    "",
  ].join("\n");

/** 0 when there are no tables. */
export async function versionOf(run: Run, n: Names): Promise<number> {
  try {
    const [row] = await run(`SELECT version FROM ${n.meta}`);
    return row === undefined ? 0 : Number(textOf(row, "version"));
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 1146 || (errno === 1049 && n.schema !== null)) return 0;
    throw error;
  }
}
