import { otherTopics } from "../../core/other-topics.ts";
import type { HeldBy } from "../kit/claim.ts";
import type { PgRow, Run } from "./connection.ts";
import type { Names } from "./names.ts";

/** How many blocked rows per aggregate, and how many aggregates, one claim releases. */
const rowsPerRelease = 1_000;
const holdsPerRelease = 200;

/** Columns of a hold joined as `h`; the row may have none. */
export const heldColumns = "h.cause_seq, h.destination IS NOT NULL AS waits, h.free_to";
export function heldOf({ cause_seq: cause, waits, free_to: freeTo }: PgRow): HeldBy | null {
  return cause ? { cause: BigInt(cause), waits: waits === "t", freeTo: freeTo ? BigInt(freeTo) : null } : null;
}

/**
 * The hold of an event `o`, as `h`. The LIMIT keeps the planner from reading all holds to join them: a writer may make any number of them.
 */
export const joinHold = (n: Names): string => `LEFT JOIN LATERAL (
    SELECT y.cause_seq, y.destination, y.free_to FROM ${n.holds} y WHERE y.aggregate_type = o.aggregate_type AND y.aggregate_id = o.aggregate_id LIMIT 1
  ) h ON true`;

/** A lane into which rows came back, and the lowest of them. */
export interface Reopened {
  readonly lane: number;
  readonly first: bigint;
}

/** The causes of these holds are settled: the next claims release their followers, in order. */
export const startReleasing = (n: Names, causes: string): string =>
  `UPDATE ${n.holds} SET free_to = 0 WHERE free_to IS NULL AND destination IS NULL AND cause_seq = ANY (${causes})`;

/** One step for the releasing holds of these lanes. A hold is dropped only when no BLOCKED row of its aggregate is left. */
export async function releaseStep(
  run: Run,
  n: Names,
  lanes: string,
): Promise<{ readonly remain: boolean; readonly lanes: readonly Reopened[] }> {
  const rows = await run(
    `WITH holds AS MATERIALIZED (
       SELECT aggregate_type, aggregate_id, lane FROM ${n.holds} WHERE free_to IS NOT NULL AND lane = ANY ($1::smallint[]) LIMIT ${holdsPerRelease}
     ), blocked AS MATERIALIZED (
       SELECT h.aggregate_type, h.aggregate_id, h.lane, b.seq FROM holds h CROSS JOIN LATERAL (
         SELECT o.seq FROM ${n.outbox} o WHERE o.status = 'BLOCKED' AND o.aggregate_type = h.aggregate_type AND o.aggregate_id = h.aggregate_id
         ORDER BY o.seq LIMIT ${rowsPerRelease}) b
     ), freed AS (
       UPDATE ${n.outbox} SET status = 'PENDING', next_attempt_at = clock_timestamp() WHERE seq IN (SELECT seq FROM blocked)
     ), moved AS (
       UPDATE ${n.holds} h SET free_to = b.last
       FROM (SELECT aggregate_type, aggregate_id, max(seq) AS last FROM blocked GROUP BY aggregate_type, aggregate_id) b
       WHERE h.aggregate_type = b.aggregate_type AND h.aggregate_id = b.aggregate_id
     ), dropped AS (
       DELETE FROM ${n.holds} h USING holds e
       WHERE h.aggregate_type = e.aggregate_type AND h.aggregate_id = e.aggregate_id
         AND NOT EXISTS (SELECT 1 FROM blocked b WHERE b.aggregate_type = h.aggregate_type AND b.aggregate_id = h.aggregate_id)
     )
     SELECT (SELECT count(*) FROM holds) AS holds, b.lane, min(b.seq) AS first FROM (SELECT 1) one LEFT JOIN blocked b ON true GROUP BY b.lane`,
    [lanes],
  );
  const reopened = rows.filter((row) => row["lane"] !== null).map((row) => ({ lane: Number(row["lane"]), first: BigInt(row["first"]!) }));
  return { remain: reopened.length > 0 || Number(rows[0]?.["holds"]) === holdsPerRelease, lanes: reopened };
}

/** Lets the longest waiting aggregates of a destination go on. */
export async function releaseDestination(run: Run, n: Names, lanes: string, destination: string, limit: number): Promise<number> {
  const released = await run(
    `UPDATE ${n.holds} SET destination = NULL, free_to = 0 WHERE (aggregate_type, aggregate_id) IN (
       SELECT aggregate_type, aggregate_id FROM ${n.holds}
       WHERE destination = $1 AND lane = ANY ($2::smallint[]) ORDER BY since, cause_seq LIMIT $3)
     RETURNING 1`,
    [destination, lanes, limit],
  );
  const own = `NOT EXISTS (SELECT 1 FROM ${n.destinations} e WHERE e.destination = h.destination AND e.lane = h.lane)`;
  const waits = destination === otherTopics ? `h.destination IS NOT NULL AND ${own}` : "h.destination = $1";
  await run(
    `DELETE FROM ${n.destinations} d WHERE d.destination = $1 AND d.lane = ANY ($2::smallint[])
     AND NOT EXISTS (SELECT 1 FROM ${n.holds} h WHERE ${waits} AND h.lane = d.lane)`,
    [destination, lanes],
  );
  return released.length;
}

/** Finds each topic by the index, however many aggregates wait for one. */
export async function waitingFor(run: Run, n: Names, after: string, limit: number): Promise<readonly string[]> {
  const next = (than: string): string =>
    `SELECT h.destination FROM ${n.holds} h WHERE h.destination > ${than} ORDER BY h.destination LIMIT 1`;
  const rows = await run(
    `WITH RECURSIVE t (destination) AS (
       (${next("$1")}) UNION ALL SELECT (${next("t.destination")}) FROM t WHERE t.destination IS NOT NULL
     ) SELECT destination FROM t WHERE destination IS NOT NULL LIMIT $2`,
    [after, limit],
  );
  return rows.map((row) => row["destination"]!);
}
