import type { Outcome, SettleReport } from "../../contracts/outbox-store.ts";
import { aggregateKey } from "../../core/event.ts";
import { type Failed, fenced, type NewHold, planSettle, seqOf } from "../kit/settle.ts";
import type { Connection, Run } from "./connection.ts";
import { heldColumns, heldOf, joinHold } from "./holds.ts";
import { literal, type Names } from "./names.ts";
import { bigints, indexable, list, spanOf, storable } from "./rows.ts";

/** What becomes of an event that is published. */
export type Published = "keep" | "delete";

/** Which window of which relay. */
interface Settling {
  readonly relay: string;
  readonly window: string;
}

interface Settled extends SettleReport {
  /** Nothing of the window is left. */
  readonly ended: boolean;
}

/** The call that marks published events, and takes these outcomes out of the window. */
function statementOf(n: Names, { relay, window }: Settling, outcomes: readonly Outcome[], onPublish: Published): string {
  const epochs = new Map(outcomes.map(({ claim }) => [claim.lane, claim.epoch]));
  const published = outcomes.filter(({ as }) => as === "published");
  const seqs = (of: readonly Outcome[]): string => `'${list(BigInt64Array.from(of, seqOf).sort())}'::bigint[]`; // sorted as the window has them
  const given = [
    ...[
      `${literal(relay)}::text`,
      `${literal(window)}::text`,
      `'${list(epochs.keys())}'::smallint[]`,
      `'${list(epochs.values())}'::bigint[]`,
    ],
    ...[seqs(published), seqs(outcomes.filter(({ as }) => as !== "published"))],
    ...[...spanOf(published.map(({ claim }) => claim.envelope.createdAt.getTime())).map((ms) => `${ms}::bigint`), onPublish === "keep"],
  ];
  return `SELECT ${n.settle}(${given.join(", ")}) AS ended`;
}

/** Settles published events only, in one round trip. Null, with nothing done, where a lane is lost or an event is not in the window. */
export async function settlePublished(
  connection: Connection,
  n: Names,
  which: Settling,
  outcomes: readonly Outcome[],
  onPublish: Published,
): Promise<Settled | null> {
  const [answer] = await connection.batch(statementOf(n, which, outcomes, onPublish));
  const [ended] = answer![0]!;
  return ended === null ? null : { settled: outcomes.length, lost: [], ended: ended === "t" };
}

/**
 * Locks the lane rows first, so that owner and epoch cannot change between the check and the update. A relay that took a lane before is
 * seen, and no relay can take one until this transaction ends.
 */
export async function settleWindow(
  run: Run,
  n: Names,
  which: Settling,
  outcomes: readonly Outcome[],
  onPublish: Published,
): Promise<Settled> {
  const lanes = [...new Set(outcomes.map(({ claim }) => claim.lane))];
  const owned = new Map(
    (
      await run(`SELECT lane, epoch FROM ${n.lanes} WHERE owner = $1 AND lane = ANY ($2::smallint[]) ORDER BY lane FOR UPDATE`, [
        which.relay,
        list(lanes),
      ])
    ).map((row) => [Number(row["lane"]), BigInt(row["epoch"]!)]),
  );
  const [held] = await run(`SELECT seqs FROM ${n.windows} WHERE "window" = $1 AND relay = $2 FOR UPDATE`, [which.window, which.relay]);
  const open = new Set(bigints(held?.["seqs"]));
  const { mine, lost } = fenced(outcomes, owned, ({ envelope }) => open.has(envelope.seq));
  if (mine.length === 0) return { settled: 0, lost, ended: open.size === 0 };
  const [done] = await run(statementOf(n, which, mine, onPublish));
  const failures = mine.filter(({ as }) => as !== "published");
  if (failures.length > 0) await settleFailures(run, n, failures);
  return { settled: mine.length, lost, ended: done!["ended"] === "t" };
}

/** Reads the rows of the outcomes, decides in outcome order, and writes the result: a few statements, however many events failed. */
export async function settleFailures(run: Run, n: Names, outcomes: readonly Outcome[]): Promise<void> {
  const rows = await run(
    `SELECT o.seq, ${indexable} AS named, ${heldColumns} FROM ${n.outbox} o
     ${joinHold(n)}
     WHERE o.seq = ANY ($1::bigint[]) AND o.status IN ('PENDING', 'FAILED')`,
    [list(outcomes.map(seqOf))],
  );
  const stored = new Map(rows.map((row) => [BigInt(row["seq"]!), row]));
  const { failed, holds, waiting, blocked } = planSettle(outcomes, ({ envelope }) => {
    const row = stored.get(envelope.seq);
    return row && { aggregate: aggregateKey(envelope), held: heldOf(row), holdable: row["named"] === "t" };
  });
  if (failed.length > 0) await fail(run, n, failed);
  if (holds.length > 0) await writeHolds(run, n, holds);
  if (blocked.length > 0) await block(run, n, blocked, waiting);
}

async function fail(run: Run, n: Names, failed: readonly Failed[]): Promise<void> {
  await run(
    `WITH f AS (SELECT * FROM json_to_recordset($1::json) AS f (seq bigint, "afterMs" double precision, code text, error text, detail text)),
          cleared AS (DELETE FROM ${n.suspects} s USING f WHERE s.seq = f.seq)
     UPDATE ${n.outbox} o SET status = CASE WHEN f."afterMs" IS NULL THEN 'DEAD' ELSE 'FAILED' END, retry_count = least(greatest(o.retry_count, 0), 999999999) + 1, last_error = f.error, error_code = f.code, error_detail = nullif(f.detail, ''),
       next_attempt_at = clock_timestamp() + f."afterMs" * interval '1 millisecond'
     FROM f WHERE o.seq = f.seq AND o.status IN ('PENDING', 'FAILED')`,
    [json(failed)],
  );
}

async function writeHolds(run: Run, n: Names, holds: readonly NewHold[]): Promise<void> {
  const rows = holds.map(({ claim: { envelope, lane }, ...hold }) => ({
    ...hold,
    lane,
    aggregate_type: envelope.aggregateType,
    aggregate_id: envelope.aggregateId,
    cause_seq: envelope.seq,
  }));
  await run(
    `INSERT INTO ${n.holds} (aggregate_type, aggregate_id, lane, cause_seq, destination, why, since, free_to)
     SELECT aggregate_type, aggregate_id, lane, cause_seq, destination, why, clock_timestamp(), CASE WHEN free THEN 0 END
     FROM json_to_recordset($1::json) AS h (aggregate_type text, aggregate_id text, lane smallint, cause_seq bigint, destination text, why text, free boolean)
     ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET cause_seq = excluded.cause_seq, destination = excluded.destination,
       why = excluded.why, since = excluded.since, free_to = excluded.free_to`,
    [json(rows)],
  );
}

async function block(run: Run, n: Names, seqs: readonly bigint[], waiting: readonly object[]): Promise<void> {
  await run(
    `WITH blocked AS (UPDATE ${n.outbox} SET status = 'BLOCKED', next_attempt_at = NULL WHERE seq = ANY ($1::bigint[]))
     INSERT INTO ${n.destinations} (destination, lane, why, since)
     SELECT destination, lane, why, clock_timestamp() FROM json_to_recordset($2::json) AS d (destination text, lane smallint, why text)
     ON CONFLICT (destination, lane) DO UPDATE SET why = excluded.why`,
    [list(seqs), json(waiting)],
  );
}

/** An error's text may hold characters that PostgreSQL cannot store. */
const json = (rows: readonly object[]): string =>
  JSON.stringify(rows, (_, value: unknown) =>
    typeof value === "string" ? storable(value) : typeof value === "bigint" ? String(value) : value,
  );
