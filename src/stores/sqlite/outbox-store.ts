import type { Claim, ClaimRequest, Holding, OutboxStore, Window } from "../../contracts/outbox-store.ts";
import type { Clock } from "../../core/clock.ts";
import type { Envelope } from "../../core/event.ts";
import type { NewId } from "../../core/ids.ts";
import { laneOf } from "../../core/lane.ts";
import { type ByteBounds, boundsOf, isUnread } from "../../core/within-bytes.ts";
import type { Connection, SqliteRow, Statements } from "../../drivers/sqlite/connection.ts";
import { claimOf, nothing, rowsPerStep } from "../kit/claim.ts";
import { createBudget } from "./budget.ts";
import { claimNarrow, claimNormal, countNarrow, type Found } from "./claim.ts";
import { releaseDestination, releaseStep, waitingFor } from "./holds.ts";
import { delayed, pending, unlaned } from "./predicates.ts";
import { readPayload } from "./payload.ts";
import { dataColumn, envelopeColumns, iso, lightColumns, nameOf, readEnvelope, retryColumn, textOf } from "./rows.ts";
import { settleWindow } from "./settle.ts";

export function createOutboxStore(connection: Connection, clock: Clock, newId: NewId): OutboxStore {
  let turn = 0;

  return {
    async claim(holding, request) {
      if (holding.lanes.size === 0) return nothing;
      const seen = await connection.read((statements) => look(statements, holding, request, clock.now()));
      if (!seen.work) return { ...nothing, suspects: seen.suspects, destinations: seen.destinations };
      return connection.write((statements) => claim(statements, holding, request, clock.now(), turn++, newId));
    },
    payload: ({ envelope: { seq } }) => readPayload(connection, seq),
    settle: (relay, window, outcomes) => connection.write((statements) => settleWindow(statements, relay, window, outcomes, clock.now())),
    release: (holding, destination, limit) =>
      connection.write((statements) => releaseDestination(statements, JSON.stringify(ownedLanes(statements, holding)), destination, limit)),
    waitingFor: (after, limit) => connection.read((statements) => waitingFor(statements, after, limit)),
  };
}

/** Whether a claim would find anything. It takes no write lock, so that an idle relay blocks no writer. */
function look(
  statements: Statements,
  holding: Holding,
  request: ClaimRequest,
  nowMs: number,
): { work: boolean; suspects: number; destinations: readonly string[] } {
  const lanes = JSON.stringify([...holding.lanes.keys()]);
  const now = iso(nowMs);
  const row = statements.get(
    `SELECT
       EXISTS (SELECT 1 FROM outbox WHERE ${unlaned})
       OR EXISTS (SELECT 1 FROM outbox WHERE ${pending} AND lane IN (SELECT value FROM json_each(?1)) AND seq NOT IN (${openSeqs}))
       OR EXISTS (SELECT 1 FROM outbox WHERE ${delayed} AND available_at <= ?2)
       OR EXISTS (SELECT 1 FROM outbox WHERE status = 'FAILED' AND next_attempt_at <= ?2 AND lane IN (SELECT value FROM json_each(?1))
                  AND seq NOT IN (${openSeqs}))
       OR EXISTS (SELECT 1 FROM waybill_holds WHERE free_to IS NOT NULL AND lane IN (SELECT value FROM json_each(?1)))
       OR EXISTS (SELECT 1 FROM waybill_windows WHERE relay = ?3 AND window NOT IN (SELECT value FROM json_each(?4)))
       AS work`,
    [lanes, now, holding.relay, JSON.stringify(request.open)],
  );
  return {
    work: Number(row?.["work"]) === 1,
    suspects: countNarrow({ statements, relay: holding.relay, lanes: [...holding.lanes.keys()], now }),
    destinations: destinationsOf(statements, lanes),
  };
}

const openSeqs = "SELECT j.value FROM waybill_windows w JOIN json_each(w.seqs) j WHERE w.relay = ?3";

function claim(statements: Statements, holding: Holding, request: ClaimRequest, nowMs: number, turn: number, newId: NewId): Window {
  const owned = ownedLanes(statements, holding);
  const lanes = JSON.stringify(owned);
  statements.run("DELETE FROM waybill_windows WHERE relay = ? AND window NOT IN (SELECT value FROM json_each(?))", [
    holding.relay,
    JSON.stringify(request.open),
  ]);
  const waiting = fillLanes(statements);
  if (waiting === null) return { ...nothing, more: true };
  const crowded = freeDelayed(statements, iso(nowMs));
  const scanned = owned.filter((lane) => !crowded.has(lane));
  forgetSuspects(statements);
  const releasing = releaseStep(statements, lanes);
  const bounds = boundsOf(request);
  const scan = { statements, relay: holding.relay, lanes: scanned, now: iso(nowMs), limit: request.limit, waiting, ...bounds };
  const { found, cut } = request.narrow ? claimNarrow(scan) : claimNormal(scan, turn);
  const id = found.length === 0 ? null : newId();
  if (id !== null) recordWindow(statements, id, holding, found, nowMs);
  return {
    id,
    claims: claimsOf(statements, holding, found, bounds),
    suspects: countNarrow(scan),
    destinations: destinationsOf(statements, lanes),
    more: cut || releasing || crowded.size > 0,
  };
}

/** A payload beyond the bounds may be too large for this process. It is read after its window is committed, if at all. */
function claimsOf(statements: Statements, holding: Holding, found: readonly Found[], bounds: ByteBounds): readonly Claim[] {
  const rows = new Map<number, SqliteRow>();
  const read = (some: readonly Found[], columns: string): void => {
    if (some.length === 0) return;
    const seqs = JSON.stringify(some.map(({ seq }) => seq));
    const sql = `SELECT ${envelopeColumns}, ${retryColumn}${columns} FROM outbox o WHERE o.seq IN (SELECT value FROM json_each(?))`;
    for (const row of statements.all(sql, [seqs])) rows.set(Number(row["seq"]), row);
  };
  const unread = found.filter(({ weight }) => isUnread(weight, bounds));
  read(unread, "");
  read(
    found.filter((one) => !unread.includes(one)),
    `, ${dataColumn}`,
  );
  return found.map(({ seq, weight, lane, deaths }) => {
    const row = rows.get(seq)!;
    const { envelope, ...told } = readEnvelope(row, row["data"]);
    const read = { envelope, unreadable: told.unreadable ?? misplaced(envelope, lane) };
    const facts = { lane, failures: Number(row["retry_count"]), deaths };
    return claimOf(read, holding, facts, isUnread(weight, bounds) ? weight.payload : null);
  });
}

/** An event in the wrong lane is not published: another relay may have the other events of its aggregate. */
const misplaced = ({ aggregateType, aggregateId }: Envelope, lane: number): string | null =>
  laneOf(aggregateType, aggregateId) === lane ? null : "lane is not that of its aggregate (NULL lets the relay fill it in)";

/** The lanes of the holding that are still this relay's, under the epoch it knows. */
function ownedLanes(statements: Statements, holding: Holding): number[] {
  return statements
    .all("SELECT lane, epoch FROM waybill_lanes WHERE owner = ?", [holding.relay])
    .filter((row) => holding.lanes.get(Number(row["lane"])) === BigInt(row["epoch"] as number))
    .map((row) => Number(row["lane"]));
}

/**
 * SQLite has no hash function, so rows come without a lane. They get it in seq order, under the write lock and before anything is claimed:
 * a row without a lane is younger than every row with one. An invalid lane counts as none. Only a limited number of large rows get their
 * lane at once, and the aggregates of the others wait. Null: there are more rows than one claim looks at.
 */
function fillLanes(statements: Statements): ReadonlySet<string> | null {
  // All bytes of the names: aggregates may differ only after the first few hundred.
  const rows = statements.all(
    `SELECT CAST(o.aggregate_type AS BLOB) AS type, CAST(o.aggregate_id AS BLOB) AS id, ${lightColumns}
     FROM outbox o WHERE ${unlaned} ORDER BY o.seq LIMIT ${rowsPerStep}`,
  );
  const budget = createBudget();
  const waiting = new Set<string>();
  for (const row of rows) {
    if (budget.take(Number(row["size"])))
      statements.run("UPDATE outbox SET lane = ? WHERE seq = ?", [laneOf(textOf(row["type"]), textOf(row["id"])), Number(row["seq"])]);
    else waiting.add(nameOf(row));
  }
  return rows.length === rowsPerStep ? null : waiting;
}

/**
 * Delayed events that have become available join their lane, all of a lane's before anything of the lane is claimed. Answers the lanes
 * that have more of them: nothing is claimed from these lanes now.
 */
function freeDelayed(statements: Statements, now: string): ReadonlySet<number> {
  const due = `${delayed} AND available_at <= ?`;
  const freed = statements.run(
    `UPDATE outbox SET next_attempt_at = available_at WHERE seq IN (SELECT seq FROM outbox WHERE ${due} ORDER BY available_at LIMIT ${rowsPerStep})`,
    [now],
  );
  if (freed < rowsPerStep) return new Set();
  return new Set(statements.all(`SELECT DISTINCT lane FROM outbox WHERE ${due}`, [now]).map((row) => Number(row["lane"])));
}

/** An event that was deleted, or is final, must not keep its aggregate in narrow windows. */
function forgetSuspects(statements: Statements): void {
  if (statements.get("SELECT 1 AS found FROM waybill_suspects LIMIT 1") === undefined) return;
  statements.run(
    "DELETE FROM waybill_suspects WHERE NOT EXISTS (SELECT 1 FROM outbox o WHERE o.seq = waybill_suspects.seq AND o.status IN ('PENDING', 'FAILED', 'BLOCKED'))",
  );
}

function recordWindow(statements: Statements, id: string, holding: Holding, found: readonly Found[], nowMs: number): void {
  const others = statements.get("SELECT coalesce(sum(json_array_length(seqs)), 0) AS n FROM waybill_windows WHERE relay = ?", [
    holding.relay,
  ]);
  const width = found.length + Number(others?.["n"]); // of all that is in flight: 1 means that the event is alone
  const byLane = new Map<number, number[]>();
  for (const { seq, lane } of found) {
    const seqs = byLane.get(lane);
    if (seqs === undefined) byLane.set(lane, [seq]);
    else seqs.push(seq);
  }
  for (const [lane, seqs] of byLane) {
    statements.run("INSERT INTO waybill_windows (window, lane, relay, epoch, width, seqs, claimed_at) VALUES (?, ?, ?, ?, ?, ?, ?)", [
      id,
      lane,
      holding.relay,
      Number(holding.lanes.get(lane)),
      width,
      JSON.stringify(seqs),
      iso(nowMs),
    ]);
  }
}

function destinationsOf(statements: Statements, lanes: string): readonly string[] {
  return statements
    .all("SELECT DISTINCT destination FROM waybill_destinations WHERE lane IN (SELECT value FROM json_each(?)) ORDER BY destination", [
      lanes,
    ])
    .map((row) => String(row["destination"]));
}
