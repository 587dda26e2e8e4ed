import type { Watch } from "../../contracts/housekeeping.ts";
import type { Status } from "../../contracts/operator.ts";
import { LANES } from "../../core/lane.ts";
import type { SqliteRow, Statements } from "../../drivers/sqlite/connection.ts";
import { countStates, deadGroups, oldestWaiting } from "./counts.ts";
import { dateOf, dateOrNull, foreign, textOf } from "./rows.ts";
import { versionOf } from "./schema.ts";

const holdsShown = 100;

/** One look at everything an operator may ask, all from the tables. */
export function readStatus(statements: Statements, nowMs: number): Status {
  const counts = countStates(statements, nowMs);
  const oldest = dateOrNull(oldestWaiting(statements, counts));
  const lanes = statements.all("SELECT lane, owner FROM waybill_lanes WHERE owner IS NOT NULL ORDER BY lane");
  const relays = statements.all(
    `SELECT r.relay, r.expires_at, r.ttl_ms, r.window AS window_limit,
            (SELECT coalesce(sum(json_array_length(w.seqs)), 0) FROM waybill_windows w WHERE w.relay = r.relay) AS window
     FROM waybill_relays r ORDER BY r.relay`,
  );
  const live = new Set(relays.filter((row) => isLive(row, nowMs)).map((row) => row["relay"]));
  const owned = lanes.filter(({ owner }) => live.has(owner)).length;
  return {
    ...counts,
    oldestUnpublishedMs: oldest === null ? null : Math.max(0, nowMs - oldest.getTime()),
    relays: relays.map((row) => ({
      relay: String(row["relay"]),
      live: live.has(row["relay"]),
      expiresAt: dateOf(row["expires_at"]),
      lanes: lanes.filter(({ owner }) => owner === row["relay"]).map(({ lane }) => Number(lane)),
      window: Number(row["window"]),
      windowLimit: Number(row["window_limit"]),
    })),
    lanes: { total: LANES, owned, free: LANES - owned },
    holds: {
      aggregates: Number(statements.get("SELECT count(*) AS n FROM waybill_holds")?.["n"]),
      blocked: counts.states.BLOCKED,
      list: statements
        .all(
          `SELECT ${foreign("h.aggregate_type")} AS aggregate_type, ${foreign("h.aggregate_id")} AS aggregate_id, h.why, h.since, h.free_to,
                  o.seq IS NOT NULL AS found, ${foreign("o.id")} AS id FROM waybill_holds h
           LEFT JOIN outbox o ON o.seq = h.cause_seq ORDER BY h.since LIMIT ${holdsShown}`,
        )
        .map((row) => ({
          aggregateType: textOf(row["aggregate_type"]),
          aggregateId: textOf(row["aggregate_id"]),
          why: String(row["why"]),
          causeId: Number(row["found"]) === 1 ? textOf(row["id"]) : null,
          since: dateOf(row["since"]),
          releasing: row["free_to"] !== null,
        })),
    },
    breakers: statements
      .all(
        `SELECT d.destination, min(d.why) AS why, min(d.since) AS since,
                (SELECT count(*) FROM waybill_holds h WHERE h.destination = d.destination) AS aggregates
         FROM waybill_destinations d GROUP BY d.destination ORDER BY d.destination`,
      )
      .map((row) => ({
        destination: String(row["destination"]),
        why: String(row["why"]),
        since: dateOf(row["since"]),
        aggregates: Number(row["aggregates"]),
      })),
    window: {
      events: Number(statements.get("SELECT coalesce(sum(json_array_length(seqs)), 0) AS n FROM waybill_windows")?.["n"]),
      suspects: Number(
        statements.get(
          "SELECT count(*) AS n FROM waybill_suspects s JOIN outbox o ON o.seq = s.seq WHERE o.status IN ('PENDING', 'FAILED')",
        )?.["n"],
      ),
    },
    dead: statements
      .all(`SELECT ${foreign("error", 64 * 1024)} AS shown, n, ${foreign("oldest")} AS oldest FROM (${deadGroups}) ORDER BY n DESC, error`)
      .map((row) => ({ error: textOf(row["shown"]), events: Number(row["n"]), oldest: dateOrNull(row["oldest"]) ?? new Date(0) })),
    schemaVersion: versionOf(statements),
    watch: readWatch(statements),
  };
}

/** A file's readers and writers are known to the operating system only, and space that was freed is used again. */
export function readWatch(statements: Statements): Watch {
  const [pages, size] = ["page_count", "page_size"].map((name) => Number(statements.get(`PRAGMA ${name}`)?.[name]));
  return { bytes: pages! * size!, deadRows: "unknown", horizon: "unknown", writer: "unknown", unseen: null };
}

/** A lease that has far longer to run than it was made for was written before the clock stepped back; its owner renews it soon, if it lives. */
function isLive(row: SqliteRow, nowMs: number): boolean {
  const leftMs = dateOf(row["expires_at"]).getTime() - nowMs;
  return leftMs > 0 && leftMs <= 2 * Number(row["ttl_ms"]);
}
