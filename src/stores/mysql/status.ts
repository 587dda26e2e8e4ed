import type { Status } from "../../contracts/operator.ts";
import { states, type State } from "../../core/event.ts";
import { LANES } from "../../core/lane.ts";
import type { Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { dateOf, isSet, numberOf, textOf, textOrNull } from "./rows.ts";
import { versionOf } from "./schema.ts";
import { readWatch } from "./watch.ts";

const holdsShown = 100;

/** One look at everything an operator may ask, all from the tables, in one snapshot. */
export async function readStatus(run: Run, n: Names): Promise<Status> {
  const counts = Object.fromEntries(states.map((state) => [state, 0])) as Record<State, number>;
  for (const row of await run(`SELECT status, COUNT(*) AS n FROM ${n.outbox} GROUP BY status`))
    counts[textOf(row, "status") as State] = numberOf(row, "n");
  // What is in a window is among few, and taken from where it was counted.
  for (const row of await run(
    `SELECT status, COUNT(*) AS n FROM ${n.events} WHERE state = 'PUBLISHING' AND seq IN (${inWindows(n)}) GROUP BY status`,
  )) {
    counts[textOf(row, "status") as State] -= numberOf(row, "n");
    counts.PUBLISHING += numberOf(row, "n");
  }
  const [facts] = await run(
    `SELECT TIMESTAMPDIFF(MICROSECOND, MIN(GREATEST(created_at, COALESCE(available_at, created_at))), UTC_TIMESTAMP(6)) DIV 1000 AS oldest_ms,
       (SELECT COUNT(*) FROM ${n.holds}) AS holds,
       (SELECT COALESCE(SUM(events), 0) FROM ${n.windows}) AS claimed,
       (SELECT COUNT(*) FROM ${n.suspects} s JOIN ${n.outbox} o ON o.seq = s.seq WHERE o.status IN ('PENDING', 'FAILED')) AS suspects
     FROM ${n.outbox} WHERE status IN ('PENDING', 'FAILED', 'BLOCKED')`,
  );
  const lanes = (await run(`SELECT lane, CAST(owner AS BINARY) AS owner FROM ${n.lanes} WHERE owner IS NOT NULL ORDER BY lane`)).map(
    (row) => ({
      lane: numberOf(row, "lane"),
      owner: textOf(row, "owner"),
    }),
  );
  const relays = await run(
    `SELECT CAST(r.relay AS BINARY) AS relay, r.expires_at, r.expires_at > UTC_TIMESTAMP(6) AS live, r.\`window\` AS window_limit,
            (SELECT COALESCE(SUM(w.events), 0) FROM ${n.windows} w WHERE w.relay = r.relay) AS claimed
     FROM ${n.relays} r ORDER BY r.relay`,
  );
  const live = new Set(relays.filter((row) => isSet(row, "live")).map((row) => textOf(row, "relay")));
  const owned = lanes.filter(({ owner }) => live.has(owner)).length;
  const holds = await run(
    `SELECT CAST(h.aggregate_type AS BINARY) AS aggregate_type, CAST(h.aggregate_id AS BINARY) AS aggregate_id, CAST(h.why AS BINARY) AS why,
            h.since, h.free_to IS NOT NULL AS releasing, o.id
     FROM ${n.holds} h LEFT JOIN ${n.outbox} o ON o.seq = h.cause_seq ORDER BY h.since LIMIT ${holdsShown}`,
  );
  const breakers = await run(
    `SELECT CAST(d.destination AS BINARY) AS destination, CAST(MIN(d.why) AS BINARY) AS why, MIN(d.since) AS since,
            (SELECT COUNT(*) FROM ${n.holds} h WHERE h.destination = d.destination) AS aggregates
     FROM ${n.destinations} d GROUP BY d.destination ORDER BY d.destination`,
  );
  const dead = await run(
    `SELECT CAST(COALESCE(o.last_error, '') AS BINARY) AS error, COUNT(*) AS n, MIN(o.created_at) AS oldest
     FROM ${n.outbox} o WHERE o.status = 'DEAD' GROUP BY o.last_error ORDER BY n DESC, error`,
  );
  const oldest = textOrNull(facts!, "oldest_ms");
  return {
    states: counts,
    estimated: [],
    oldestUnpublishedMs: oldest === null ? null : Math.max(0, Number(oldest)),
    relays: relays.map((row) => ({
      relay: textOf(row, "relay"),
      live: isSet(row, "live"),
      expiresAt: dateOf(row, "expires_at"),
      lanes: lanes.filter(({ owner }) => owner === textOf(row, "relay")).map(({ lane }) => lane),
      window: numberOf(row, "claimed"),
      windowLimit: numberOf(row, "window_limit"),
    })),
    lanes: { total: LANES, owned, free: LANES - owned },
    holds: {
      aggregates: numberOf(facts!, "holds"),
      blocked: counts.BLOCKED,
      list: holds.map((row) => ({
        aggregateType: textOf(row, "aggregate_type"),
        aggregateId: textOf(row, "aggregate_id"),
        why: textOf(row, "why"),
        causeId: textOrNull(row, "id"),
        since: dateOf(row, "since"),
        releasing: isSet(row, "releasing"),
      })),
    },
    breakers: breakers.map((row) => ({
      destination: textOf(row, "destination"),
      why: textOf(row, "why"),
      since: dateOf(row, "since"),
      aggregates: numberOf(row, "aggregates"),
    })),
    window: { events: numberOf(facts!, "claimed"), suspects: numberOf(facts!, "suspects") },
    dead: dead.map((row) => ({ error: textOf(row, "error"), events: numberOf(row, "n"), oldest: dateOf(row, "oldest") })),
    schemaVersion: await versionOf(run, n),
    watch: await readWatch(run, n),
  };
}

const inWindows = (n: Names): string =>
  `SELECT j.seq FROM ${n.windows} w JOIN JSON_TABLE(w.seqs, '$.*[*]' COLUMNS (seq BIGINT PATH '$')) j`;
