import type { Holder, Watch } from "../../contracts/housekeeping.ts";
import type { PgRow, Run } from "./connection.ts";
import { literal, type Names } from "./names.ts";

/**
 * Sessions, prepared transactions and slots that may have a transaction id or a snapshot. A vacuum's own snapshot holds nothing back, and
 * parallel workers use their leader's. `here`: vacuum considers only holders in this database, and those that belong to none.
 */
const holders = `
  SELECT 'session' AS kind, a.pid::text AS name, a.usename::text AS "user", a.application_name AS application, a.state, a.xact_start AS since,
         a.backend_xid AS xid, a.backend_xmin AS xmin, a.datid IS NULL OR a.datname = current_database() AS here
  FROM pg_stat_activity a
  WHERE a.pid <> pg_backend_pid() AND a.leader_pid IS NULL AND a.pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
  UNION ALL
  SELECT 'prepared', gid, owner::text, '', 'prepared', prepared, transaction, transaction, database = current_database() FROM pg_prepared_xacts
  UNION ALL
  SELECT 'slot', slot_name::text, '', '', CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL, NULL, xmin, true FROM pg_replication_slots`;

const oldest = (what: string, age: string, which: string): string =>
  `(SELECT ${literal(what)} AS what, kind, name, "user", application, state, ${age} AS transactions,
      floor(extract(epoch FROM clock_timestamp() - since) * 1000)::bigint AS age_ms
    FROM held WHERE ${which} ORDER BY ${age} DESC, since LIMIT 1)`;

/** Reads statistics only: no event, and no text of a statement. */
export async function readWatch(run: Run, n: Names): Promise<Watch> {
  const [facts] = await run(
    `SELECT sum(pg_total_relation_size(r.oid)) AS bytes, sum(s.n_dead_tup) AS dead, current_user AS me,
            pg_has_role(current_user, 'pg_read_all_stats', 'usage') AS sees
     FROM (SELECT $1::regclass::oid AS oid UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = $1::regclass) r
     LEFT JOIN pg_stat_all_tables s ON s.relid = r.oid`,
    [n.outbox],
  );
  const rows = await run(
    `WITH held AS MATERIALIZED (${holders})
     ${oldest("horizon", "greatest(age(xid), age(xmin))", "here AND (xid IS NOT NULL OR xmin IS NOT NULL)")}
     UNION ALL ${oldest("writer", "age(xid)", "xid IS NOT NULL")}`,
  );
  const of = (what: string): Holder | null => {
    const row = rows.find((found) => found["what"] === what);
    return row === undefined ? null : holderOf(row);
  };
  return {
    bytes: Number(facts!["bytes"]),
    deadRows: Number(facts!["dead"]),
    horizon: of("horizon"),
    writer: of("writer"),
    unseen:
      facts!["sees"] === "t"
        ? null
        : `the state and age of other roles' sessions: a superuser can GRANT pg_read_all_stats TO ${facts!["me"]!}`,
  };
}

function holderOf(row: PgRow): Holder {
  return {
    kind: row["kind"] as Holder["kind"],
    name: row["name"]!,
    user: row["user"] ?? "unknown",
    application: row["application"] ?? "unknown",
    state: row["state"] ?? "unknown",
    ageMs: numberOf(row["age_ms"]),
    transactions: numberOf(row["transactions"]),
  };
}

const numberOf = (value: string | null | undefined): number | "unknown" =>
  value === null || value === undefined ? "unknown" : Math.max(0, Number(value));
