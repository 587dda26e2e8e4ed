import type { Status } from "../../contracts/operator.ts";
import { states, type State } from "../../core/event.ts";
import { LANES } from "../../core/lane.ts";
import type { Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { dateOf, ms } from "./rows.ts";
import { versionOf } from "./schema.ts";
import { readWatch } from "./watch.ts";

const holdsShown = 100;

/** One look at everything an operator may ask, all from the tables, in one snapshot. */
export async function readStatus(run: Run, n: Names): Promise<Status> {
  const counts = Object.fromEntries(states.map((state) => [state, 0])) as Record<State, number>;
  for (const row of await run(`SELECT state, count(*) AS n FROM ${n.events} GROUP BY state`))
    counts[row["state"] as State] = Number(row["n"]);
  const [facts] = await run(
    `SELECT ${ms("clock_timestamp()")} - ${ms("min(greatest(created_at, available_at))")} AS oldest_ms,
       (SELECT count(*) FROM ${n.holds}) AS holds,
       (SELECT coalesce(sum(cardinality(seqs)), 0) FROM ${n.windows}) AS claimed,
       (SELECT count(*) FROM ${n.suspects} s JOIN ${n.outbox} o ON o.seq = s.seq WHERE o.status IN ('PENDING', 'FAILED')) AS suspects
     FROM ${n.outbox} WHERE status IN ('PENDING', 'FAILED', 'BLOCKED')`,
  );
  const lanes = await run(`SELECT lane, owner FROM ${n.lanes} WHERE owner IS NOT NULL ORDER BY lane`);
  const relays = await run(
    `SELECT r.relay, ${ms("r.expires_at")} AS expires_ms, r.expires_at > clock_timestamp() AS live, r."window" AS window_limit,
            (SELECT coalesce(sum(cardinality(w.seqs)), 0) FROM ${n.windows} w WHERE w.relay = r.relay) AS claimed
     FROM ${n.relays} r ORDER BY r.relay`,
  );
  const live = new Set(relays.filter((row) => row["live"] === "t").map((row) => row["relay"]));
  const owned = lanes.filter(({ owner }) => live.has(owner)).length;
  const holds = await run(
    `SELECT h.aggregate_type, h.aggregate_id, h.why, ${ms("h.since")} AS since_ms, h.free_to, o.id FROM ${n.holds} h
     LEFT JOIN ${n.outbox} o ON o.seq = h.cause_seq ORDER BY h.since LIMIT ${holdsShown}`,
  );
  const breakers = await run(
    `SELECT d.destination, min(d.why) AS why, ${ms("min(d.since)")} AS since_ms,
            (SELECT count(*) FROM ${n.holds} h WHERE h.destination = d.destination) AS aggregates
     FROM ${n.destinations} d GROUP BY d.destination ORDER BY d.destination`,
  );
  const dead = await run(
    `SELECT coalesce(last_error, '') AS error, count(*) AS n, ${ms("min(created_at)")} AS oldest_ms
     FROM ${n.outbox} WHERE status = 'DEAD' GROUP BY last_error ORDER BY count(*) DESC, 1`,
  );
  const oldest = facts!["oldest_ms"] ?? null;
  return {
    states: counts,
    estimated: [],
    oldestUnpublishedMs: oldest === null ? null : Math.max(0, Number(oldest)),
    relays: relays.map((row) => ({
      relay: row["relay"]!,
      live: row["live"] === "t",
      expiresAt: dateOf(row["expires_ms"]),
      lanes: lanes.filter(({ owner }) => owner === row["relay"]).map(({ lane }) => Number(lane)),
      window: Number(row["claimed"]),
      windowLimit: Number(row["window_limit"]),
    })),
    lanes: { total: LANES, owned, free: LANES - owned },
    holds: {
      aggregates: Number(facts!["holds"]),
      blocked: counts.BLOCKED,
      list: holds.map((row) => ({
        aggregateType: row["aggregate_type"]!,
        aggregateId: row["aggregate_id"]!,
        why: row["why"]!,
        causeId: row["id"] ?? null,
        since: dateOf(row["since_ms"]),
        releasing: row["free_to"] !== null,
      })),
    },
    breakers: breakers.map((row) => ({
      destination: row["destination"]!,
      why: row["why"]!,
      since: dateOf(row["since_ms"]),
      aggregates: Number(row["aggregates"]),
    })),
    window: { events: Number(facts!["claimed"]), suspects: Number(facts!["suspects"]) },
    dead: dead.map((row) => ({ error: row["error"]!, events: Number(row["n"]), oldest: dateOf(row["oldest_ms"]) })),
    schemaVersion: await versionOf(run, n),
    watch: await readWatch(run, n),
  };
}
