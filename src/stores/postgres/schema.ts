import type { Schema } from "../../contracts/store.ts";
import { causesOf, sqlStateOf } from "../../core/causes.ts";
import { systemClock } from "../../core/clock.ts";
import { fingerprintOf, refuseOther, type TablesFound } from "../../core/tables.ts";
import { persist } from "../../core/time.ts";
import type { Connection, Run } from "./connection.ts";
import { sqlState } from "./driver.ts";
import { grants } from "./grants.ts";
import { literal, namesOf, type Names } from "./names.ts";
import { checkTables, inOneTransaction, refuseLayout, type PartitionUnit } from "../kit/schema.ts";
import { firstPartitions } from "./partitions.ts";
import { version1 } from "./schema.sql.ts";

/** The text of each version, from version 1 on. The text of a released version never changes. An outbox is partitioned from the start, or never. */
const versions: readonly ((n: Names, unit: PartitionUnit | null) => string)[] = [version1];

/** Of each version. */
export const fingerprints: readonly string[] = versions.map((text) => {
  const n = namesOf("public");
  return fingerprintOf(text(n, null), text(n, "day"));
});

/** What leads from tables of version `from` to those of this code. */
function statements(n: Names, from: number, unit: PartitionUnit | null): string {
  const fingerprint = literal(fingerprints.at(-1)!);
  return [
    ...versions.slice(from).map((text) => text(n, unit).trim()),
    from === 0
      ? `INSERT INTO ${n.meta} (version, fingerprint, partitions) VALUES (${versions.length}, ${fingerprint}, ${unit === null ? "NULL" : literal(unit)});`
      : `UPDATE ${n.meta} SET version = ${versions.length}, fingerprint = ${fingerprint};`,
    ...(unit === null ? [] : [`${firstPartitions(n)};`]),
  ].join("\n");
}

const lockMs = 1_000;
const tries = 60;

/** The path of the session, for as long as our statements need another. Everything is qualified, since it is found by the session's own. */
const ownPath = [
  "SELECT pg_catalog.set_config('waybill.search_path', pg_catalog.current_setting('search_path'), true),",
  "  pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);",
].join("\n");
const formerPath = "SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('waybill.search_path', true), true);";

/** Concurrent migrations run one after the other. */
const migrationLock = "SELECT pg_advisory_xact_lock(hashtextextended('waybill.migrate', 0))";

/** `asked` is the layout of a new outbox. An existing outbox must have the same layout; null accepts any. */
export function createSchema(connection: Connection, n: Names, asked: PartitionUnit | null): Schema {
  const { place } = connection;
  /** Waits only briefly for other transactions: sessions that come later would queue behind it. */
  const locking = <T>(work: (run: Run) => Promise<T>): Promise<T> => {
    const isBusy = (error: unknown): boolean => causesOf(error).some((cause) => ["55P03", "40P01"].includes(sqlStateOf(cause) ?? ""));
    const alone = (): Promise<T> =>
      connection.transaction(async (run) => {
        await run(`SET LOCAL lock_timeout = '${lockMs}ms'`);
        await run(migrationLock);
        return work(run);
      });
    return persist(alone, (error, tried) => (isBusy(error) && tried < tries ? systemClock.sleep(lockMs) : null));
  };
  return {
    migrate: () =>
      locking(async (run) => {
        const found = await tablesOf(run, n);
        refuseOther(place, found, fingerprints);
        const { version: from } = found;
        const unit = from === 0 ? asked : await unitOf(run, n);
        refuseLayout(place, asked, unit);
        if (from === 0 && (await run("SELECT 1 FROM pg_namespace WHERE nspname = $1", [unquoted(n.schema)])).length === 0)
          await run(`CREATE SCHEMA ${n.schema}`);
        if (from < versions.length) await run(statements(n, from, unit));
        else if (unit !== null) await run(firstPartitions(n));
        return versions.map((_, at) => at + 1).slice(from);
      }),
    print: () =>
      [inOneTransaction, ownPath, `CREATE SCHEMA IF NOT EXISTS ${n.schema};`, statements(n, 0, asked), formerPath, ""].join("\n"),
    grants: () => grants(n, asked !== null),
    check: async () => {
      checkTables(place, await tablesOf(connection.run, n), fingerprints, "postgres://…");
      if (asked !== null) refuseLayout(place, asked, await unitOf(connection.run, n));
    },
  };
}

/** How the outbox is partitioned. */
export const unitOf = async (run: Run, n: Names): Promise<PartitionUnit | null> =>
  ((await run(`SELECT partitions FROM ${n.meta}`))[0]?.["partitions"] ?? null) as PartitionUnit | null;

/** The tables of early builds have no column for the fingerprint. */
export async function tablesOf(run: Run, n: Names): Promise<TablesFound> {
  const none = { version: 0, fingerprint: null };
  const [found] = await run("SELECT to_regclass($1) IS NOT NULL AS found", [n.meta]);
  if (found?.["found"] !== "t") return none;
  try {
    const [row] = await run(`SELECT row_to_json(m) AS meta FROM ${n.meta} m`);
    const meta = JSON.parse(row?.["meta"] ?? "{}") as Partial<TablesFound>;
    return { version: meta.version ?? 0, fingerprint: meta.fingerprint ?? null };
  } catch (error) {
    if (sqlState(error) === "42P01") return none; // a schema that this role may not look into has no tables for it
    throw error;
  }
}

const unquoted = (name: string): string => name.slice(1, -1).replaceAll('""', '"');
