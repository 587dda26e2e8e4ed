import type { Outcome, SettleReport } from "../../contracts/outbox-store.ts";
import type { Statements } from "../../drivers/sqlite/connection.ts";
import { fenced, planSettle, seqOf } from "../kit/settle.ts";
import { heldColumns, heldOf, startReleasing, writeHolds } from "./holds.ts";
import { countOf, iso, jsonOf } from "./rows.ts";

/** Runs under the write lock, so that owner and epoch cannot change between the check and the update. */
export function settleWindow(
  statements: Statements,
  relay: string,
  window: string,
  outcomes: readonly Outcome[],
  nowMs: number,
): SettleReport {
  const open = new Map(
    statements
      .all("SELECT lane, epoch, seqs FROM waybill_windows WHERE window = ? AND relay = ?", [window, relay])
      .map((row) => [
        Number(row["lane"]),
        { epoch: BigInt(row["epoch"] as number), seqs: new Set(JSON.parse(String(row["seqs"])) as number[]) },
      ]),
  );
  const owned = new Map(
    statements
      .all("SELECT lane, epoch FROM waybill_lanes WHERE owner = ?", [relay])
      .map((row) => [Number(row["lane"]), BigInt(row["epoch"] as number)]),
  );
  const { mine, lost } = fenced(outcomes, owned, ({ lane, epoch, envelope }) => {
    const part = open.get(lane);
    return part?.epoch === epoch && part.seqs.has(Number(envelope.seq));
  });
  publish(statements, mine, nowMs);
  settleFailures(
    statements,
    mine.filter(({ as }) => as !== "published"),
    nowMs,
  );
  clearSuspects(statements, mine);
  for (const { claim } of mine) open.get(claim.lane)?.seqs.delete(Number(claim.envelope.seq));
  for (const lane of new Set(mine.map(({ claim }) => claim.lane))) {
    const seqs = [...open.get(lane)!.seqs];
    if (seqs.length === 0) statements.run("DELETE FROM waybill_windows WHERE window = ? AND lane = ?", [window, lane]);
    else statements.run("UPDATE waybill_windows SET seqs = ? WHERE window = ? AND lane = ?", [JSON.stringify(seqs), window, lane]);
  }
  return { settled: mine.length, lost };
}

function publish(statements: Statements, outcomes: readonly Outcome[], nowMs: number): void {
  const seqs = outcomes.filter(({ as }) => as === "published").map(({ claim }) => Number(claim.envelope.seq));
  if (seqs.length === 0) return;
  statements.run(
    "UPDATE outbox SET status = 'PUBLISHED', published_at = ?, next_attempt_at = NULL WHERE seq IN (SELECT value FROM json_each(?)) AND status IN ('PENDING', 'FAILED')",
    [iso(nowMs), JSON.stringify(seqs)],
  );
  startReleasing(statements, seqs);
}

/** Reads the events of the outcomes, decides in the order of the outcomes, and writes the result. */
function settleFailures(statements: Statements, outcomes: readonly Outcome[], nowMs: number): void {
  if (outcomes.length === 0) return;
  // SQLite distinguishes the aggregates: plain SQL may have given them names that JavaScript cannot hold, of any length.
  const rows = statements.all(
    `SELECT o.seq, dense_rank() OVER (ORDER BY o.aggregate_type, o.aggregate_id) AS aggregate, ${heldColumns}
     FROM outbox o LEFT JOIN waybill_holds h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
     WHERE o.seq IN (SELECT value FROM json_each(?)) AND o.status IN ('PENDING', 'FAILED')`,
    [JSON.stringify(outcomes.map((outcome) => Number(seqOf(outcome))))],
  );
  const stored = new Map(rows.map((row) => [Number(row["seq"]), row]));
  const { failed, holds, waiting, blocked } = planSettle(outcomes, ({ envelope }) => {
    const row = stored.get(Number(envelope.seq));
    return row && { aggregate: String(row["aggregate"]), held: heldOf(row) };
  });
  // One statement each, however many events fail: a settle keeps the file's write lock.
  statements.run(
    `UPDATE outbox SET status = f.value ->> 'status', retry_count = min(${countOf("retry_count")}, 2147483646) + 1, next_attempt_at = f.value ->> 'next',
       last_error = f.value ->> 'error', error_code = f.value ->> 'code', error_detail = f.value ->> 'detail'
     FROM json_each(?) f WHERE outbox.seq = f.value ->> 'seq'`,
    [
      jsonOf(
        failed.map(({ seq, code, error, detail, afterMs }) => ({
          seq: Number(seq),
          status: afterMs === null ? "DEAD" : "FAILED",
          next: afterMs === null ? null : iso(nowMs + afterMs),
          error,
          code,
          detail,
        })),
      ),
    ],
  );
  writeHolds(statements, holds, nowMs);
  statements.run("UPDATE outbox SET status = 'BLOCKED', next_attempt_at = NULL WHERE seq IN (SELECT value FROM json_each(?))", [
    jsonOf(blocked.map(Number)),
  ]);
  statements.run(
    `INSERT INTO waybill_destinations (destination, lane, why, since)
     SELECT value ->> 'destination', value ->> 'lane', value ->> 'why', ?2 FROM json_each(?1) WHERE true
     ON CONFLICT DO UPDATE SET why = excluded.why`,
    [jsonOf(waiting), iso(nowMs)],
  );
}

function clearSuspects(statements: Statements, outcomes: readonly Outcome[]): void {
  const seqs = outcomes.filter(({ as }) => as !== "returned").map(({ claim }) => Number(claim.envelope.seq));
  statements.run("DELETE FROM waybill_suspects WHERE seq IN (SELECT value FROM json_each(?))", [JSON.stringify(seqs)]);
}
