import type { Outcome, SettleReport } from "../../contracts/outbox-store.ts";
import type { Statements } from "../../drivers/sqlite/connection.ts";
import { holdBehind, holdForDestination, startReleasing, type Held } from "./holds.ts";
import { countOf, iso } from "./rows.ts";

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
      .all("SELECT lane, epoch, seqs FROM waybill_windows WHERE window = ? AND relay = ?", window, relay)
      .map((row) => [
        Number(row["lane"]),
        { epoch: BigInt(row["epoch"] as number), seqs: new Set(JSON.parse(String(row["seqs"])) as number[]) },
      ]),
  );
  const owned = new Map(
    statements
      .all("SELECT lane, epoch FROM waybill_lanes WHERE owner = ?", relay)
      .map((row) => [Number(row["lane"]), BigInt(row["epoch"] as number)]),
  );
  const lost = new Set<number>();
  const mine = outcomes.filter(({ claim }) => {
    if (owned.get(claim.lane) !== claim.epoch) lost.add(claim.lane);
    const part = open.get(claim.lane);
    return part?.epoch === claim.epoch && part.seqs.has(Number(claim.envelope.seq)) && owned.get(claim.lane) === claim.epoch;
  });
  publish(statements, mine, nowMs);
  for (const outcome of mine) settleOne(statements, outcome, nowMs);
  clearSuspects(statements, mine);
  for (const { claim } of mine) open.get(claim.lane)?.seqs.delete(Number(claim.envelope.seq));
  for (const lane of new Set(mine.map(({ claim }) => claim.lane))) {
    const seqs = [...open.get(lane)!.seqs];
    if (seqs.length === 0) statements.run("DELETE FROM waybill_windows WHERE window = ? AND lane = ?", window, lane);
    else statements.run("UPDATE waybill_windows SET seqs = ? WHERE window = ? AND lane = ?", JSON.stringify(seqs), window, lane);
  }
  return { settled: mine.length, lost: [...lost].sort((a, b) => a - b) };
}

function publish(statements: Statements, outcomes: readonly Outcome[], nowMs: number): void {
  const seqs = outcomes.filter(({ as }) => as === "published").map(({ claim }) => Number(claim.envelope.seq));
  if (seqs.length === 0) return;
  statements.run(
    "UPDATE outbox SET status = 'PUBLISHED', published_at = ?, next_attempt_at = NULL WHERE seq IN (SELECT value FROM json_each(?)) AND status IN ('PENDING', 'FAILED')",
    iso(nowMs),
    JSON.stringify(seqs),
  );
  startReleasing(statements, seqs);
}

function settleOne(statements: Statements, outcome: Outcome, nowMs: number): void {
  const event = heldOf(outcome);
  switch (outcome.as) {
    case "published":
      return;
    case "retry":
      if (!fail(statements, event.seq, "FAILED", iso(nowMs + outcome.afterMs), outcome.error)) return;
      holdBehind(statements, event, outcome.error, nowMs);
      return;
    case "parked":
      if (!fail(statements, event.seq, "DEAD", null, outcome.error)) return;
      holdBehind(statements, event, outcome.error, nowMs);
      if (outcome.release) startReleasing(statements, [event.seq]);
      return;
    case "returned":
      if (outcome.destination === undefined) return;
      if (statements.get("SELECT 1 AS open FROM outbox WHERE seq = ? AND status IN ('PENDING', 'FAILED')", event.seq) === undefined) return;
      holdForDestination(statements, event, outcome.destination.topic, outcome.destination.why, nowMs);
  }
}

function fail(statements: Statements, seq: number, status: "FAILED" | "DEAD", nextAttemptAt: string | null, error: string): boolean {
  const changed = statements.run(
    `UPDATE outbox SET status = ?, retry_count = min(${countOf("retry_count")}, 2147483646) + 1, next_attempt_at = ?, last_error = ? WHERE seq = ? AND status IN ('PENDING', 'FAILED')`,
    status,
    nextAttemptAt,
    error,
    seq,
  );
  return changed === 1;
}

function clearSuspects(statements: Statements, outcomes: readonly Outcome[]): void {
  const seqs = outcomes.filter(({ as }) => as !== "returned").map(({ claim }) => Number(claim.envelope.seq));
  statements.run("DELETE FROM waybill_suspects WHERE seq IN (SELECT value FROM json_each(?))", JSON.stringify(seqs));
}

function heldOf({ claim }: Outcome): Held {
  return { seq: Number(claim.envelope.seq), lane: claim.lane };
}
