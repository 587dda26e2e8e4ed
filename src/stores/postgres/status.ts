import type { Status, TailStatus } from "../../contracts/operator.ts";
import type { State } from "../../core/event.ts";
import { LANES } from "../../core/lane.ts";
import { maxMarkBytes } from "../../core/letter.ts";
import { counted, noEvents, shown, statusOf, type Wait } from "../kit/status.ts";
import type { PgRow, Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { delayed, ready, tailed, type Reach } from "./pending.ts";
import { cells, ms, toldError } from "./rows.ts";
import { tablesOf } from "./schema.ts";
import { readWatch } from "./watch.ts";

/** Estimates rows from the indexes of all partitions, as if each index were as dense as when it was last analysed. */
const estimateOf = (n: Names, index: string): string => `
SELECT coalesce(sum(CASE WHEN c.relpages > 0 AND c.reltuples >= 0 THEN c.reltuples / c.relpages ELSE 350 END
  * (pg_relation_size(c.oid) / current_setting('block_size')::integer)), 0)::bigint AS n
FROM pg_class c, to_regclass('${`${n.schema}.${n.index("outbox", index)}`.replaceAll("'", "''")}') root
WHERE c.relkind = 'i' AND (c.oid = root OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = root))`;

/** A class of rows that one index holds. Above `counted` rows, its size is estimated from the index's own statistics. */
interface Class {
  readonly index: string;
  /** The rows `o`. */
  readonly rows: string;
  /** Where their column says otherwise. */
  readonly state?: State;
  /** In the index's own order: the rows that are due first come first. */
  readonly order?: string;
  /** What a row waits for once it is `due`. Absent where the rows wait for nothing. */
  readonly wait?: Wait;
  readonly due?: string;
}

/** In an outbox whose log was read, the index of pending rows has the published ones too. */
const pendingRows = (n: Names, reach: Reach, limit: number): string =>
  `generate_series(0, ${LANES - 1}) AS l (lane) CROSS JOIN LATERAL (${ready(n, reach, "0", "true", String(limit))}) o`;

const classesOf = (n: Names, reach: Reach): readonly Class[] => [
  { index: "pending", rows: pendingRows(n, reach, counted + 1), wait: "claimable" },
  ...(reach.tail > 0n
    ? [{ index: "pending", rows: `${n.outbox} o WHERE ${tailed("o", String(reach.tail))}`, state: "PUBLISHED" as const }]
    : []),
  {
    index: "delayed",
    rows: `${n.outbox} o WHERE ${delayed}`,
    order: "available_at",
    wait: "claimable",
    due: "available_at <= clock_timestamp()",
  },
  {
    index: "failed",
    rows: `${n.outbox} o WHERE status = 'FAILED'`,
    order: "next_attempt_at",
    wait: "claimable",
    due: "next_attempt_at <= clock_timestamp()",
  },
  { index: "blocked", rows: `${n.outbox} o WHERE status = 'BLOCKED'`, wait: "blocked" },
  { index: "dead", rows: `${n.outbox} o WHERE status IN ('DEAD', 'DISCARDED')`, wait: "dead", due: "status = 'DEAD'" },
  { index: "published", rows: `${n.outbox} o WHERE status = 'PUBLISHED'` },
];

interface Counts {
  readonly states: Record<State, number>;
  readonly estimated: readonly State[];
  /** As `StatusRows` has them. */
  readonly oldest: readonly PgRow[];
}

/** Of rows with status, aggregate_type, since and due: counts and ages by status, and then by type, the oldest first. */
const grouped = (rows: string): string =>
  `SELECT status, grouping(aggregate_type) AS total, left(aggregate_type, 256) AS aggregate_type, count(*) AS n,
     ${ms("min(since) FILTER (WHERE due)")} AS due_ms, ${ms("min(since) FILTER (WHERE NOT due)")} AS later_ms
   FROM (${rows}) s GROUP BY GROUPING SETS ((status), (status, aggregate_type)) ORDER BY total DESC, min(since) LIMIT ${shown + 2}`;

/** Never counts a whole table: each class stops at the bound. */
async function countStates(run: Run, n: Names): Promise<Counts> {
  const [floor] = await run(`SELECT floor FROM ${n.tail}`);
  const reach = { tail: BigInt(floor?.["floor"] ?? 0), detour: false };
  const counts = noEvents();
  const estimated = new Set<State>();
  const oldest: PgRow[] = [];
  const older = (row: PgRow, { wait, index }: Class): void => {
    if (wait === undefined) return;
    const aggregate_type = row["total"] === "1" ? null : row["aggregate_type"]!;
    if (typeof row["due_ms"] === "string") oldest.push({ wait, aggregate_type, since: row["due_ms"] });
    // Rows of the index `dead` that are not due are discarded ones.
    if (typeof row["later_ms"] === "string" && index !== "dead") oldest.push({ wait: "later", aggregate_type, since: row["later_ms"] });
  };
  for (const each of classesOf(n, reach)) {
    const { index, rows: from, order, wait, due = "true" } = each;
    const columns = wait === undefined ? "NULL::timestamptz AS since" : "greatest(created_at, available_at) AS since";
    const rows = await run(
      grouped(
        `SELECT status, ${wait === undefined ? "''::text" : "aggregate_type"} AS aggregate_type, ${columns}, coalesce(${due}, false) AS due
         FROM ${from} ${order === undefined ? "" : `ORDER BY ${order}`} LIMIT ${counted + 1}`,
      ),
    );
    const totals = rows.filter((row) => row["total"] === "1");
    const found = totals.reduce((sum, row) => sum + Number(row["n"]), 0);
    const all = found <= counted ? found : Math.max(found, Number((await run(estimateOf(n, index)))[0]!["n"]));
    for (const row of totals) {
      const state = each.state ?? (row["status"] as State);
      counts[state] += Math.round((Number(row["n"]) / found) * all);
      if (found > counted) estimated.add(state);
    }
    for (const row of rows) older(row, each);
    if (index === "pending" && wait !== undefined && found > counted)
      for (const row of await run(
        grouped(
          `SELECT o.status, o.aggregate_type, greatest(o.created_at, o.available_at) AS since, true AS due
           FROM ${pendingRows(n, reach, 10)}`,
        ),
      ))
        older(row, each);
  }
  // Events that a live relay has claimed are PUBLISHING. They are few, however large the table is.
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
  return { states: counts, estimated: [...estimated], oldest };
}

const upTo = (rows: string): string => `(SELECT count(*) FROM (SELECT 1 FROM ${rows} LIMIT ${counted + 1}) s)`;

/** Everything an operator may ask for, read from the tables in one snapshot. */
export async function readStatus(run: Run, n: Names): Promise<Status> {
  // Without statistics the planner would read the whole table for the few rows that an index has.
  await run("SET LOCAL enable_seqscan = off");
  const counts = await countStates(run, n);
  await run("SET LOCAL enable_seqscan = on");
  const [facts] = await run(
    `SELECT ${ms("clock_timestamp()")} AS now_ms, ${upTo(n.holds)} AS holds, ${upTo(`${n.holds} WHERE destination IS NOT NULL`)} AS waiting,
       (SELECT coalesce(sum(cardinality(seqs)), 0) FROM ${n.windows}) AS claimed,
       ${upTo(`${n.suspects} s JOIN ${n.outbox} o ON o.seq = s.seq WHERE o.status IN ('PENDING', 'FAILED')`)} AS suspects`,
  );
  const rows = {
    ...counts,
    nowMs: Number(facts!["now_ms"]),
    lanes: await run(`SELECT lane, owner FROM ${n.lanes} WHERE owner IS NOT NULL ORDER BY lane`),
    relays: await run(
      `SELECT r.relay, ${ms("r.expires_at")} AS expires_at, r.expires_at > clock_timestamp() AS live, r."window" AS window_limit,
              (SELECT coalesce(sum(cardinality(w.seqs)), 0) FROM ${n.windows} w WHERE w.relay = r.relay) AS claimed
       FROM ${n.relays} r ORDER BY r.relay`,
    ),
    holds: await run(
      `SELECT h.aggregate_type, h.aggregate_id, h.why, h.destination, ${ms("h.since")} AS since, h.free_to IS NOT NULL AS releasing, o.id AS cause_id
       FROM ${n.holds} h LEFT JOIN ${n.outbox} o ON o.seq = h.cause_seq ORDER BY h.since LIMIT ${shown}`,
    ),
    breakers: await run(
      `SELECT d.destination, min(d.why) AS why, ${ms("min(d.since)")} AS since,
              ${upTo(`${n.holds} h WHERE h.destination = d.destination`)} AS aggregates
       FROM ${n.destinations} d GROUP BY d.destination ORDER BY d.destination LIMIT ${shown}`,
    ),
    dead: await run(
      `SELECT error, count(*) AS events, ${ms("min(created_at)")} AS oldest, min(id) AS example
       FROM (SELECT ${toldError} AS error, created_at, left(id, ${maxMarkBytes}) AS id FROM ${n.outbox} o WHERE status = 'DEAD' LIMIT ${counted}) d
       GROUP BY error ORDER BY count(*) DESC, 1 LIMIT ${shown}`,
    ),
    facts: facts!,
    schemaVersion: (await tablesOf(run, n)).version,
    tail: await tailOf(run, n),
    watch: await readWatch(run, n),
  };
  return statusOf(rows, cells);
}

/** A relay that has lost a lane reads the log no more, although the row still names it. */
async function tailOf(run: Run, n: Names): Promise<TailStatus> {
  const [row] = await run(
    `SELECT t.floor, t.position, (SELECT r.relay FROM ${n.relays} r WHERE r.relay = t.owner AND r.expires_at > clock_timestamp()
        AND (SELECT count(*) FROM ${n.lanes} l WHERE l.owner = r.relay) = ${LANES}) AS relay
     FROM ${n.tail} t`,
  );
  return { relay: row?.["relay"] ?? null, floor: BigInt(row?.["floor"] ?? 0), position: row?.["position"] ?? null };
}
