import type { Status } from "../../contracts/operator.ts";
import type { State } from "../../core/event.ts";
import { LANES } from "../../core/lane.ts";
import { counted, noEvents, shown, statusOf } from "../kit/status.ts";
import type { Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { delayed, pending } from "./pending.ts";
import { cells, ms } from "./rows.ts";
import { versionOf } from "./schema.ts";
import { readWatch } from "./watch.ts";

/** Of an estimate, by the indexes of all partitions: each is as dense as it was when it was last analysed. */
const estimateOf = (n: Names, index: string): string => `
SELECT coalesce(sum(CASE WHEN c.relpages > 0 AND c.reltuples >= 0 THEN c.reltuples / c.relpages ELSE 350 END
  * (pg_relation_size(c.oid) / current_setting('block_size')::integer)), 0)::bigint AS n
FROM pg_class c, to_regclass('${`${n.schema}.${n.index("outbox", index)}`.replaceAll("'", "''")}') root
WHERE c.relkind = 'i' AND (c.oid = root OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = root))`;

/** A class of rows that one index holds, and how many of each status it has; beyond the bound, from the index's own statistics. */
const classes = [
  { index: "pending", where: pending, ages: true },
  { index: "delayed", where: delayed, ages: true },
  { index: "failed", where: "status = 'FAILED'", ages: true },
  { index: "blocked", where: "status = 'BLOCKED'", ages: true },
  { index: "dead", where: "status IN ('DEAD', 'DISCARDED')", ages: false },
  { index: "published", where: "status = 'PUBLISHED'", ages: false },
] as const;

interface Counts {
  readonly states: Record<State, number>;
  readonly estimated: readonly State[];
  /** When the oldest event became due that is not published. */
  readonly oldestMs: number | null;
}

/** No table is counted: each class ends at the bound. */
async function countStates(run: Run, n: Names): Promise<Counts> {
  const counts = noEvents();
  const estimated = new Set<State>();
  let oldest: number | null = null;
  const older = (value: string | null | undefined): void => {
    if (value !== null && value !== undefined) oldest = Math.min(oldest ?? Infinity, Number(value));
  };
  for (const { index, where, ages } of classes) {
    const rows = await run(
      `SELECT status, count(*) AS n, ${ages ? ms("min(greatest(created_at, available_at))") : "NULL::bigint"} AS oldest_ms
       FROM (SELECT status${ages ? ", created_at, available_at" : ""} FROM ${n.outbox} WHERE ${where} LIMIT ${counted + 1}) s GROUP BY status`,
    );
    const found = rows.reduce((sum, row) => sum + Number(row["n"]), 0);
    const all = found <= counted ? found : Math.max(found, Number((await run(estimateOf(n, index)))[0]!["n"]));
    for (const row of rows) {
      const state = row["status"] as State;
      counts[state] += Math.round((Number(row["n"]) / found) * all);
      if (found > counted) estimated.add(state);
      older(row["oldest_ms"]);
    }
    if (index === "pending" && found > counted)
      for (const row of await run(
        `SELECT ${ms("min(greatest(o.created_at, o.available_at))")} AS oldest_ms FROM generate_series(0, ${LANES - 1}) AS l (lane)
         CROSS JOIN LATERAL (SELECT * FROM ${n.outbox} o WHERE o.lane = l.lane AND ${pending} ORDER BY o.seq LIMIT 10) o`,
      ))
        older(row["oldest_ms"]);
  }
  // What a live relay has claimed is under way: few, whatever the table holds.
  for (const row of await run(
    `SELECT o.status, count(*) AS n FROM ${n.windows} w
     JOIN ${n.relays} r ON r.relay = w.relay AND r.expires_at > clock_timestamp() JOIN ${n.lanes} l ON l.owner = w.relay
     CROSS JOIN LATERAL unnest(w.seqs) AS u (seq) JOIN ${n.outbox} o ON o.seq = u.seq AND o.lane = l.lane
     WHERE o.status IN ('PENDING', 'FAILED') GROUP BY o.status`,
  )) {
    const state = row["status"] as State;
    counts.PUBLISHING += Number(row["n"]);
    counts[state] = Math.max(0, counts[state] - Number(row["n"]));
  }
  return { states: counts, estimated: [...estimated], oldestMs: oldest };
}

const upTo = (rows: string): string => `(SELECT count(*) FROM (SELECT 1 FROM ${rows} LIMIT ${counted + 1}) s)`;

/** One look at everything an operator may ask, all from the tables, in one snapshot. */
export async function readStatus(run: Run, n: Names): Promise<Status> {
  // Without statistics the planner would read the whole table for the few rows that an index has.
  await run("SET LOCAL enable_seqscan = off");
  const { oldestMs, ...counts } = await countStates(run, n);
  await run("SET LOCAL enable_seqscan = on");
  const [facts] = await run(
    `SELECT ${ms("clock_timestamp()")} AS now_ms, ${upTo(n.holds)} AS holds,
       (SELECT coalesce(sum(cardinality(seqs)), 0) FROM ${n.windows}) AS claimed,
       ${upTo(`${n.suspects} s JOIN ${n.outbox} o ON o.seq = s.seq WHERE o.status IN ('PENDING', 'FAILED')`)} AS suspects`,
  );
  const rows = {
    ...counts,
    oldestUnpublishedMs: oldestMs === null ? null : Number(facts!["now_ms"]) - oldestMs,
    lanes: await run(`SELECT lane, owner FROM ${n.lanes} WHERE owner IS NOT NULL ORDER BY lane`),
    relays: await run(
      `SELECT r.relay, ${ms("r.expires_at")} AS expires_at, r.expires_at > clock_timestamp() AS live, r."window" AS window_limit,
              (SELECT coalesce(sum(cardinality(w.seqs)), 0) FROM ${n.windows} w WHERE w.relay = r.relay) AS claimed
       FROM ${n.relays} r ORDER BY r.relay`,
    ),
    holds: await run(
      `SELECT h.aggregate_type, h.aggregate_id, h.why, ${ms("h.since")} AS since, h.free_to IS NOT NULL AS releasing, o.id AS cause_id
       FROM ${n.holds} h LEFT JOIN ${n.outbox} o ON o.seq = h.cause_seq ORDER BY h.since LIMIT ${shown}`,
    ),
    breakers: await run(
      `SELECT d.destination, min(d.why) AS why, ${ms("min(d.since)")} AS since,
              ${upTo(`${n.holds} h WHERE h.destination = d.destination`)} AS aggregates
       FROM ${n.destinations} d GROUP BY d.destination ORDER BY d.destination LIMIT ${shown}`,
    ),
    dead: await run(
      `SELECT coalesce(last_error, '') AS error, count(*) AS events, ${ms("min(created_at)")} AS oldest
       FROM (SELECT last_error, created_at FROM ${n.outbox} WHERE status = 'DEAD' LIMIT ${counted}) d
       GROUP BY last_error ORDER BY count(*) DESC, 1 LIMIT ${shown}`,
    ),
    facts: facts!,
    schemaVersion: await versionOf(run, n),
    watch: await readWatch(run, n),
  };
  return statusOf(rows, cells);
}
