import type { SqliteRow, Statements } from "../../drivers/sqlite/connection.ts";
import { otherTopics } from "../../core/other-topics.ts";
import type { HeldBy } from "../kit/claim.ts";
import type { NewHold } from "../kit/settle.ts";
import { iso, jsonOf } from "./rows.ts";

/** How many blocked rows per aggregate, and how many aggregates, one claim releases. */
const rowsPerRelease = 1_000;
const holdsPerRelease = 200;

/** The columns of a hold named `h`, or NULL without one. */
export const heldColumns = "h.cause_seq, h.destination IS NOT NULL AS waits, h.free_to";
export function heldOf({ cause_seq: cause, waits, free_to: freeTo }: SqliteRow): HeldBy | null {
  return cause === null
    ? null
    : { cause: BigInt(cause as number), waits: Number(waits) === 1, freeTo: freeTo === null ? null : BigInt(freeTo as number) };
}

/** Copies the causes' aggregates exactly as they are stored: plain SQL may have given them names that JavaScript cannot hold. */
export function writeHolds(statements: Statements, holds: readonly NewHold[], nowMs: number): void {
  const rows = holds.map(({ claim, destination, why, free }) => ({
    seq: Number(claim.envelope.seq),
    lane: claim.lane,
    destination,
    why,
    free: free ? 0 : null,
  }));
  statements.run(
    `INSERT INTO waybill_holds (aggregate_type, aggregate_id, lane, cause_seq, destination, why, since, free_to)
     SELECT o.aggregate_type, o.aggregate_id, h.value ->> 'lane', o.seq, h.value ->> 'destination', h.value ->> 'why', ?2, h.value ->> 'free'
     FROM json_each(?1) h JOIN outbox o ON o.seq = h.value ->> 'seq' WHERE true
     ON CONFLICT DO UPDATE SET cause_seq = excluded.cause_seq, destination = excluded.destination, why = excluded.why, since = excluded.since,
       free_to = excluded.free_to`,
    [jsonOf(rows), iso(nowMs)],
  );
}

/** The causes of these holds are settled. Later claims release their followers, in order. */
export function startReleasing(statements: Statements, causes: readonly number[]): void {
  if (causes.length === 0) return;
  statements.run(
    "UPDATE waybill_holds SET free_to = 0 WHERE free_to IS NULL AND destination IS NULL AND cause_seq IN (SELECT value FROM json_each(?))",
    [JSON.stringify(causes)],
  );
}

/** Releases one step of the releasing holds of these lanes. True while some remain. */
export function releaseStep(statements: Statements, lanes: string): boolean {
  const holds = statements.all(
    `SELECT cause_seq FROM waybill_holds WHERE free_to IS NOT NULL AND lane IN (SELECT value FROM json_each(?)) LIMIT ${holdsPerRelease}`,
    [lanes],
  );
  let remain = holds.length === holdsPerRelease;
  for (const { cause_seq: cause } of holds) {
    const blocked = statements.all(
      `SELECT o.seq FROM waybill_holds h JOIN outbox o ON o.aggregate_type = h.aggregate_type AND o.aggregate_id = h.aggregate_id
       WHERE h.cause_seq = ? AND o.status = 'BLOCKED' ORDER BY o.seq LIMIT ${rowsPerRelease}`,
      [cause!],
    );
    const last = blocked.at(-1);
    if (last === undefined) {
      statements.run("DELETE FROM waybill_holds WHERE cause_seq = ?", [cause!]);
      continue;
    }
    statements.run("UPDATE outbox SET status = 'PENDING', next_attempt_at = available_at WHERE seq IN (SELECT value FROM json_each(?))", [
      JSON.stringify(blocked.map((row) => row["seq"])),
    ]);
    statements.run("UPDATE waybill_holds SET free_to = ? WHERE cause_seq = ?", [last["seq"]!, cause!]);
    remain = true;
  }
  return remain;
}

/** Releases the aggregates that have waited longest for a topic. */
export function releaseDestination(statements: Statements, lanes: string, destination: string, limit: number): number {
  const released = statements.run(
    `UPDATE waybill_holds SET destination = NULL, free_to = 0 WHERE (aggregate_type, aggregate_id) IN (
       SELECT aggregate_type, aggregate_id FROM waybill_holds
       WHERE destination = ? AND lane IN (SELECT value FROM json_each(?)) ORDER BY since, cause_seq LIMIT ?)`,
    [destination, lanes, limit],
  );
  const own = "NOT EXISTS (SELECT 1 FROM waybill_destinations e WHERE e.destination = h.destination AND e.lane = h.lane)";
  const waits = destination === otherTopics ? `h.destination IS NOT NULL AND ${own}` : "h.destination = ?1";
  statements.run(
    `DELETE FROM waybill_destinations WHERE destination = ?1 AND lane IN (SELECT value FROM json_each(?2))
     AND NOT EXISTS (SELECT 1 FROM waybill_holds h WHERE ${waits} AND h.lane = waybill_destinations.lane)`,
    [destination, lanes],
  );
  return released;
}

/** Finds each topic by the index, however many aggregates wait for one. */
export function waitingFor(statements: Statements, after: string, limit: number): readonly string[] {
  const next = (than: string): string =>
    `SELECT h.destination FROM waybill_holds h WHERE h.destination > ${than} ORDER BY h.destination LIMIT 1`;
  return statements
    .all(
      `WITH RECURSIVE t (destination) AS (
         SELECT (${next("?1")}) UNION ALL SELECT (${next("t.destination")}) FROM t WHERE t.destination IS NOT NULL
       ) SELECT destination FROM t WHERE destination IS NOT NULL LIMIT ?2`,
      [after, limit],
    )
    .map((row) => String(row["destination"]));
}
