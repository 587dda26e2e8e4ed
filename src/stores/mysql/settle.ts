import type { Outcome, SettleReport } from "../../contracts/outbox-store.ts";
import { aggregateKey } from "../../core/event.ts";
import { type Failed, fenced, planSettle, seqOf } from "../kit/settle.ts";
import type { MysqlSession } from "./connection.ts";
import { heldColumns, heldOf, startReleasing, writeHolds } from "./holds.ts";
import type { Names } from "./names.ts";
import { bigOf, isSet, numberOf, sizeOf, textOf } from "./rows.ts";
import { list, literal } from "./values.ts";
import { keepWindow, lockWindows } from "./windows.ts";

/** What becomes of an event that is published. */
export type Published = "keep" | "delete";
type Own = Pick<MysqlSession, "run" | "change">;

/**
 * `over` when nothing of the window is left. Locks the lane rows first, so that owner and epoch cannot change between the check and the
 * update. A relay that took a lane before is seen, and none can take one meanwhile.
 */
export async function settleWindow(
  own: Own,
  n: Names,
  relay: string,
  window: string,
  outcomes: readonly Outcome[],
  onPublish: Published,
): Promise<SettleReport & { readonly over: boolean }> {
  const lanes = [...new Set(outcomes.map(({ claim }) => claim.lane))].sort((a, b) => a - b);
  const rows = await own.run(
    `SELECT lane, epoch FROM ${n.lanes} FORCE INDEX (PRIMARY) WHERE lane IN (${list(lanes)}) AND owner = ? ORDER BY lane FOR UPDATE`,
    [relay],
  );
  const owned = new Map(rows.map((row) => [numberOf(row, "lane"), bigOf(row, "epoch")]));
  const [held] = await lockWindows(own, n, [window]);
  const open = new Set(held?.relay === relay ? [...held.parts.values()].flat() : []);
  const { mine, lost } = fenced(outcomes, owned, ({ envelope }) => open.has(envelope.seq));
  if (held === undefined || mine.length === 0) return { settled: 0, lost, over: held === undefined };
  await finish(own, n, mine, onPublish);
  const failures = mine.filter(({ as }) => as !== "published");
  if (failures.length > 0) await settleFailures(own, n, failures);
  const done = new Set(mine.map(seqOf));
  const left = new Map([...held.parts].map(([lane, seqs]) => [lane, seqs.filter((seq) => !done.has(seq))]));
  await keepWindow(own, n, window, left);
  return { settled: mine.length, lost, over: sizeOf(left) === 0 };
}

/** Settles published events, and clears suspects whose outcome is known. */
async function finish(own: Own, n: Names, mine: readonly Outcome[], onPublish: Published): Promise<void> {
  const published = mine.filter(({ as }) => as === "published").map(seqOf);
  const known = mine.filter(({ as }) => as !== "returned").map(seqOf);
  const which = `WHERE o.seq IN (${list(published)}) AND o.status IN ('PENDING', 'FAILED')`;
  if (published.length > 0)
    await own.change(
      onPublish === "delete"
        ? `DELETE o FROM ${n.outbox} o FORCE INDEX (PRIMARY) ${which}`
        : `UPDATE ${n.outbox} o FORCE INDEX (PRIMARY) SET status = 'PUBLISHED', published_at = UTC_TIMESTAMP(6), next_attempt_at = NULL ${which}`,
    );
  const [trouble] = await own.run(`SELECT EXISTS (SELECT 1 FROM ${n.holds}) AS holds, EXISTS (SELECT 1 FROM ${n.suspects}) AS suspects`);
  if (isSet(trouble, "holds")) await startReleasing(own, n, published);
  if (isSet(trouble, "suspects")) await own.change(`DELETE s FROM ${n.suspects} s FORCE INDEX (PRIMARY) WHERE s.seq IN (${list(known)})`);
}

/** Reads what the outcomes concern, decides in their order, and writes the result: a few statements, however many failed. */
async function settleFailures(own: Own, n: Names, outcomes: readonly Outcome[]): Promise<void> {
  const rows = await own.run(
    `SELECT o.seq, CAST(o.aggregate_type AS BINARY) AS aggregate_type, CAST(o.aggregate_id AS BINARY) AS aggregate_id, ${heldColumns} FROM ${n.outbox} o FORCE INDEX (PRIMARY)
     LEFT JOIN ${n.holds} h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
     WHERE o.seq IN (${list(outcomes.map(seqOf))}) AND o.status IN ('PENDING', 'FAILED')`,
  );
  // By the row's own names: the envelope of an event that cannot be carried may have them cut.
  const names = new Map(
    rows.map((row) => [bigOf(row, "seq"), { aggregateType: textOf(row, "aggregate_type"), aggregateId: textOf(row, "aggregate_id") }]),
  );
  const holdsBefore = new Map(rows.map((row) => [bigOf(row, "seq"), heldOf(row)]));
  const { failed, holds, waiting, blocked } = planSettle(outcomes, ({ envelope: { seq } }) => {
    const own = names.get(seq);
    return own && { aggregate: aggregateKey(own), held: holdsBefore.get(seq)! };
  });
  await fail(own, n, failed);
  await writeHolds(
    own,
    n,
    holds.map(({ claim: { envelope, lane }, destination, why, free }) => ({
      ...names.get(envelope.seq)!,
      ...{ lane, cause: envelope.seq, destination, why, freeTo: free ? 0n : null, since: null },
    })),
  );
  if (blocked.length > 0)
    await own.change(
      `UPDATE ${n.outbox} FORCE INDEX (PRIMARY) SET status = 'BLOCKED', next_attempt_at = NULL WHERE seq IN (${list(blocked)})`,
    );
  if (waiting.length > 0)
    await own.change(
      `INSERT INTO ${n.destinations} (destination, lane, why) VALUES ${waiting.map(() => "(?, ?, ?)").join(", ")}
       ON DUPLICATE KEY UPDATE why = VALUES(why)`,
      waiting.flatMap(({ destination, lane, why }) => [destination, lane, why]),
    );
}

/** One less than the column holds: plain SQL may have inserted a row with any number. */
const mostRetries = 2_147_483_646;

async function fail(own: Own, n: Names, failed: readonly Failed[]): Promise<void> {
  if (failed.length === 0) return;
  const by = (value: (each: Failed) => string): string =>
    `CASE seq ${failed.map((each) => `WHEN ${each.seq} THEN ${value(each)}`).join(" ")} END`;
  const due = ({ afterMs }: Failed): string =>
    afterMs === null ? "NULL" : `UTC_TIMESTAMP(6) + INTERVAL ${literal(Math.round(afterMs * 1000))} MICROSECOND`;
  await own.change(
    `UPDATE ${n.outbox} FORCE INDEX (PRIMARY) SET retry_count = LEAST(GREATEST(retry_count, 0), ${mostRetries}) + 1, status = ${by(({ afterMs }) => (afterMs === null ? "'DEAD'" : "'FAILED'"))},
       next_attempt_at = ${by(due)}, last_error = ${by(({ error }) => literal(error))},
       error_code = ${by(({ code }) => literal(code))}, error_detail = ${by(({ detail }) => literal(detail))}
     WHERE seq IN (${list(failed.map(({ seq }) => seq))}) AND status IN ('PENDING', 'FAILED')`,
  );
}
