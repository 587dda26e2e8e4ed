import type { PgRow, Run } from "../connection.ts";
import type { LogNames } from "./names.ts";

/** The server's own words about slot and publication. A column that its version lacks is undefined. */
export interface LogFacts {
  readonly walLevel: string;
  readonly slot: SlotRow | null;
  /** Null when there is no publication of this name. */
  readonly publication: PublicationRow | null;
}

export interface SlotRow {
  readonly plugin: string | null;
  readonly database: string | null;
  readonly temporary: boolean;
  readonly active: boolean;
  readonly active_pid: number | null;
  readonly restart_lsn: string | null;
  readonly confirmed_flush_lsn: string | null;
  readonly wal_status: string | null;
  readonly safe_wal_size: number | null;
  readonly invalidation_reason?: string | null;
  readonly conflicting?: boolean | null;
  readonly failover?: boolean;
  /** Whether it is of our plugin and of this database. */
  readonly ours: boolean;
  /** Bytes of WAL from `restart_lsn`, and from `confirmed_flush_lsn`, to the end. */
  readonly retained: number | null;
  readonly behind: number | null;
  /** Whether the publication is surely older. False where nobody can tell. */
  readonly younger: boolean;
}

export interface PublicationRow {
  readonly inserts: boolean;
  readonly through_root: boolean;
  /** The outbox's columns in it; null where it does not have the outbox, and undefined before version 15, where it has all columns. */
  readonly columns?: readonly string[] | null;
  readonly covers: boolean;
}

/** Works on a standby too, and for every role. */
const slotSql = `SELECT row_to_json(f) AS json FROM (
  SELECT s.*, s.plugin = 'pgoutput' AND s.database = current_database() AS ours,
    pg_wal_lsn_diff(e.lsn, s.restart_lsn) AS retained, pg_wal_lsn_diff(e.lsn, s.confirmed_flush_lsn) AS behind,
    coalesce(age(s.catalog_xmin) < (SELECT least(age(p.xmin), (SELECT min(age(r.xmin)) FROM pg_publication_rel r WHERE r.prpubid = p.oid))
      FROM pg_publication p WHERE p.pubname = $1), false) AS younger
  FROM pg_replication_slots s
  CROSS JOIN (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END AS lsn) e
  WHERE s.slot_name = $1) f`;

/** A row of the view pg_publication_tables has the columns from version 15 on. */
const publicationSql = `SELECT row_to_json(f) AS json FROM (
  SELECT p.pubinsert AS inserts, p.pubviaroot AS through_root, t.json IS NOT NULL AS covers, t.json->'attnames' AS columns
  FROM pg_publication p LEFT JOIN LATERAL (
    SELECT row_to_json(t) AS json FROM pg_publication_tables t WHERE t.pubname = p.pubname AND t.schemaname = $2 AND t.tablename = $3
  ) t ON true WHERE p.pubname = $1) f`;

export async function readFacts(run: Run, names: LogNames): Promise<LogFacts> {
  const [level] = await run("SELECT current_setting('wal_level') AS level");
  const [slot] = await run(slotSql, [names.name]);
  const [publication] = await run(publicationSql, [names.name, names.schema, names.table]);
  const read = <T>(row: PgRow | undefined): T | null => JSON.parse(row?.["json"] ?? "null") as T | null;
  return { walLevel: level!["level"]!, slot: read<SlotRow>(slot), publication: read<PublicationRow>(publication) };
}

/** Why the server has given the slot up, or null. */
export function lossOf(slot: SlotRow): string | null {
  if (typeof slot.invalidation_reason === "string") return slot.invalidation_reason;
  if (slot.wal_status === "lost") return "the server removed WAL that it needs (max_slot_wal_keep_size)";
  return slot.conflicting === true ? "it conflicts with recovery" : null;
}
