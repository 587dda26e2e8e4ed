import type { Watch } from "../../contracts/housekeeping.ts";
import type { Status } from "../../contracts/operator.ts";
import type { SqliteRow, Statements } from "../../drivers/sqlite/connection.ts";
import { shown, statusOf } from "../kit/status.ts";
import { countStates, deadGroups, oldestWaiting } from "./counts.ts";
import { cells, dateOf, foreign } from "./rows.ts";
import { tablesOf } from "./schema.ts";

/** Everything that an operator may ask for, all from the tables. */
export function readStatus(statements: Statements, nowMs: number): Status {
  const counts = countStates(statements, nowMs);
  const relays = statements.all(
    `SELECT r.relay, r.expires_at, r.ttl_ms, r.window AS window_limit,
            (SELECT coalesce(sum(json_array_length(w.seqs)), 0) FROM waybill_windows w WHERE w.relay = r.relay) AS claimed
     FROM waybill_relays r ORDER BY r.relay`,
  );
  const rows = {
    ...counts,
    nowMs,
    oldest: oldestWaiting(statements, counts, nowMs),
    lanes: statements.all("SELECT lane, owner FROM waybill_lanes WHERE owner IS NOT NULL ORDER BY lane"),
    relays: relays.map((row) => ({ ...row, live: Number(isLive(row, nowMs)) })),
    holds: statements.all(
      `SELECT ${foreign("h.aggregate_type")} AS aggregate_type, ${foreign("h.aggregate_id")} AS aggregate_id, h.why, h.destination, h.since,
              h.free_to IS NOT NULL AS releasing, CASE WHEN o.seq IS NOT NULL THEN coalesce(${foreign("o.id")}, X'') END AS cause_id
       FROM waybill_holds h LEFT JOIN outbox o ON o.seq = h.cause_seq ORDER BY h.since LIMIT ${shown}`,
    ),
    breakers: statements.all(
      `SELECT d.destination, min(d.why) AS why, min(d.since) AS since,
              (SELECT count(*) FROM waybill_holds h WHERE h.destination = d.destination) AS aggregates
       FROM waybill_destinations d GROUP BY d.destination ORDER BY d.destination`,
    ),
    dead: statements.all(
      `SELECT ${foreign("group_error", 64 * 1024)} AS error, events, ${foreign("first")} AS oldest, example FROM (${deadGroups}) ORDER BY events DESC, group_error`,
    ),
    facts: statements.get(
      `SELECT (SELECT count(*) FROM waybill_holds) AS holds,
         (SELECT count(*) FROM waybill_holds WHERE destination IS NOT NULL) AS waiting, (SELECT coalesce(sum(json_array_length(seqs)), 0) FROM waybill_windows) AS claimed,
         (SELECT count(*) FROM waybill_suspects s JOIN outbox o ON o.seq = s.seq WHERE o.status IN ('PENDING', 'FAILED')) AS suspects`,
    )!,
    schemaVersion: tablesOf(statements).version,
    watch: readWatch(statements),
  };
  return statusOf(rows, cells);
}

/** Only the operating system knows a file's readers and writers, and SQLite reuses freed space. */
export function readWatch(statements: Statements): Watch {
  const [pages, size] = ["page_count", "page_size"].map((name) => Number(statements.get(`PRAGMA ${name}`)?.[name]));
  return { bytes: pages! * size!, deadRows: "unknown", horizon: "unknown", writer: "unknown", unseen: null };
}

/** A lease with far more time left than its ttl was written before the clock stepped back. A live owner renews it soon. */
function isLive(row: SqliteRow, nowMs: number): boolean {
  const leftMs = dateOf(row["expires_at"]).getTime() - nowMs;
  return leftMs > 0 && leftMs <= 2 * Number(row["ttl_ms"]);
}
