import type { Outcome, SettleReport } from "../../contracts/outbox-store.ts";
import { aggregateKey } from "../../core/event.ts";
import { type Failed, fenced, type NewHold, planSettle, seqOf } from "../kit/settle.ts";
import type { Connection, Run } from "./connection.ts";
import { heldColumns, heldOf, joinHold, startReleasing } from "./holds.ts";
import { literal, type Names } from "./names.ts";
import { addedWithin, bigints, indexable, list, spanOf, storable } from "./rows.ts";

/** What becomes of an event that is published. */
export type Published = "keep" | "delete";

/** Settles published events only, in one round trip. Null, with nothing done, where a lane is lost or an event is not in the window. */
export async function settlePublished(
  connection: Connection,
  n: Names,
  { relay, window }: Settling,
  outcomes: readonly Outcome[],
  onPublish: Published,
): Promise<Settled | null> {
  const epochs = new Map(outcomes.map(({ claim }) => [claim.lane, claim.epoch]));
  const seqs = BigInt64Array.from(outcomes, seqOf).sort(); // as the window has them
  const given = [
    ...[`${literal(relay)}::text`, `${literal(window)}::text`],
    ...[`'${list(epochs.keys())}'::smallint[]`, `'${list(epochs.values())}'::bigint[]`, `'${list(seqs)}'::bigint[]`],
    ...[...spanOf(outcomes.map(({ claim }) => claim.envelope.createdAt.getTime())).map((ms) => `${ms}::bigint`), onPublish === "keep"],
  ];
  const [answer] = await connection.batch(`SELECT ${n.settle}(${given.join(", ")})`);
  const [ended] = answer![0]!;
  return ended === null ? null : { settled: outcomes.length, lost: [], ended: ended === "t" };
}

/** Which window of which relay. */
interface Settling {
  readonly relay: string;
  readonly window: string;
}

interface Settled extends SettleReport {
  /** Nothing of the window is left. */
  readonly ended: boolean;
}

const doneSql = (n: Names, onPublish: Published, seqs: string, which: string): string =>
  onPublish === "delete"
    ? `DELETE FROM ${n.outbox} WHERE seq = ANY (${seqs}) AND status IN ('PENDING', 'FAILED') AND ${which}`
    : `UPDATE ${n.outbox} SET status = 'PUBLISHED', published_at = clock_timestamp(), next_attempt_at = NULL
       WHERE seq = ANY (${seqs}) AND status IN ('PENDING', 'FAILED') AND ${which}`;

/**
 * Locks the lane rows first, so that owner and epoch cannot change between the check and the update. A relay that took a lane before is
 * seen, and no relay can take one until this transaction ends.
 */
export async function settleWindow(
  run: Run,
  n: Names,
  { relay, window }: Settling,
  outcomes: readonly Outcome[],
  onPublish: Published,
): Promise<Settled> {
  const lanes = [...new Set(outcomes.map(({ claim }) => claim.lane))];
  const owned = new Map(
    (
      await run(`SELECT lane, epoch FROM ${n.lanes} WHERE owner = $1 AND lane = ANY ($2::smallint[]) ORDER BY lane FOR UPDATE`, [
        relay,
        list(lanes),
      ])
    ).map((row) => [Number(row["lane"]), BigInt(row["epoch"]!)]),
  );
  const [held] = await run(`SELECT seqs FROM ${n.windows} WHERE "window" = $1 AND relay = $2 FOR UPDATE`, [window, relay]);
  const open = new Set(bigints(held?.["seqs"]));
  const { mine, lost } = fenced(outcomes, owned, ({ envelope }) => open.has(envelope.seq));
  if (mine.length > 0) {
    for (const { claim } of mine) open.delete(claim.envelope.seq);
    await finish(run, n, window, mine, [...open], onPublish);
    const failures = mine.filter(({ as }) => as !== "published");
    if (failures.length > 0) await settleFailures(run, n, failures);
  }
  return { settled: mine.length, lost, ended: open.size === 0 };
}

/** Writes the published events, and what is left of the window, in one statement. */
async function finish(
  run: Run,
  n: Names,
  window: string,
  mine: readonly Outcome[],
  left: readonly bigint[],
  onPublish: Published,
): Promise<void> {
  const published = mine.filter(({ as }) => as === "published");
  const known = mine.filter(({ as }) => as !== "returned").map(seqOf);
  const seqs = list(published.map(seqOf));
  const done = (which: string): string => doneSql(n, onPublish, "$1::bigint[]", which);
  // The bounds on `created_at` keep the database from looking into every partition.
  const created = published.map(({ claim }) => claim.envelope.createdAt.getTime());
  const [row] = await run(
    `WITH done AS (${done(addedWithin("$5", "$6"))} RETURNING 1),
          freed AS (${startReleasing(n, "$1::bigint[]")}),
          cleared AS (DELETE FROM ${n.suspects} WHERE seq = ANY ($2::bigint[])),
          ended AS (DELETE FROM ${n.windows} WHERE "window" = $3 AND cardinality($4::bigint[]) = 0),
          kept AS (UPDATE ${n.windows} SET seqs = $4::bigint[] WHERE "window" = $3 AND cardinality($4::bigint[]) > 0)
     SELECT count(*) AS n FROM done`,
    [seqs, list(known), window, list(left), ...spanOf(created)],
  );
  // Plain SQL may have changed a `created_at`, or settled the event some other way.
  if (Number(row!["n"]) < published.length) await run(done("true"), [seqs]);
}

/** Reads the rows of the outcomes, decides in outcome order, and writes the result: a few statements, however many events failed. */
async function settleFailures(run: Run, n: Names, outcomes: readonly Outcome[]): Promise<void> {
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
    `UPDATE ${n.outbox} o SET status = CASE WHEN f."afterMs" IS NULL THEN 'DEAD' ELSE 'FAILED' END, retry_count = least(greatest(o.retry_count, 0), 999999999) + 1, last_error = f.error, error_code = f.code, error_detail = nullif(f.detail, ''),
       next_attempt_at = clock_timestamp() + f."afterMs" * interval '1 millisecond'
     FROM json_to_recordset($1::json) AS f (seq bigint, "afterMs" double precision, code text, error text, detail text)
     WHERE o.seq = f.seq AND o.status IN ('PENDING', 'FAILED')`,
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
