import { otherTopics } from "../../core/other-topics.ts";
import type { HeldBy } from "../kit/claim.ts";
import type { MysqlRow, MysqlSession } from "./connection.ts";
import type { Names } from "./names.ts";
import { bigOf, bigOrNull, isSet, numberOf, textOf, textOrNull } from "./rows.ts";
import { list, type SqlValue } from "./values.ts";

/** How many aggregates, rows in all, and rows of one aggregate a claim releases: each aggregate gets a share of the rows. */
const holdsPerRelease = 200;
const rowsPerRelease = 10_000;
const rowsPerHold = 1_000;

type Own = Pick<MysqlSession, "run" | "change">;

export interface Hold {
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly lane: number;
  readonly cause: bigint;
  readonly destination: string | null;
  readonly why: string;
  readonly freeTo: bigint | null;
  /** Null for one that begins now. */
  readonly since: string | null;
}

/** Of a hold named `h`, which may be missing. */
export const heldColumns = "h.cause_seq, h.destination IS NOT NULL AS waits, h.free_to";
export function heldOf(row: MysqlRow): HeldBy | null {
  const cause = bigOrNull(row, "cause_seq");
  return cause === null ? null : { cause, waits: isSet(row, "waits"), freeTo: bigOrNull(row, "free_to") };
}

/** The columns of a hold named `h`; `since` as text, to be written back as it was. */
const holdColumns = `CAST(h.aggregate_type AS BINARY) AS hold_type, CAST(h.aggregate_id AS BINARY) AS hold_id, h.lane AS hold_lane, h.cause_seq,
  CAST(h.destination AS BINARY) AS destination, CAST(h.why AS BINARY) AS why, h.free_to, h.since, h.blocked AS hold_hash`;

function holdOf(row: MysqlRow): Hold {
  return {
    aggregateType: textOf(row, "hold_type"),
    aggregateId: textOf(row, "hold_id"),
    lane: numberOf(row, "hold_lane"),
    cause: bigOf(row, "cause_seq"),
    destination: textOrNull(row, "destination"),
    why: textOf(row, "why"),
    freeTo: bigOrNull(row, "free_to"),
    since: textOf(row, "since"),
  };
}

export async function writeHolds({ change }: Own, n: Names, holds: readonly Hold[]): Promise<void> {
  if (holds.length === 0) return;
  const row = "(?, ?, ?, ?, ?, ?, COALESCE(?, UTC_TIMESTAMP(6)), ?)";
  await change(
    `INSERT INTO ${n.holds} (aggregate_type, aggregate_id, lane, cause_seq, destination, why, since, free_to) VALUES ${holds.map(() => row).join(", ")}
     ON DUPLICATE KEY UPDATE cause_seq = VALUES(cause_seq), destination = VALUES(destination), why = VALUES(why), since = VALUES(since), free_to = VALUES(free_to)`,
    holds.flatMap((hold): SqlValue[] => [
      hold.aggregateType,
      hold.aggregateId,
      hold.lane,
      hold.cause,
      hold.destination,
      hold.why,
      hold.since,
      hold.freeTo,
    ]),
  );
}

/** The events that held these aggregates are settled: later claims release the followers, in order. */
export async function startReleasing({ change }: Own, n: Names, causes: readonly bigint[]): Promise<void> {
  if (causes.length > 0)
    await change(
      `UPDATE ${n.holds} FORCE INDEX (cause) SET free_to = 0 WHERE free_to IS NULL AND destination IS NULL AND cause_seq IN (${list(causes)})`,
    );
}

/** Makes a delayed row ready. It does not copy `available_at`: under strict modes a zero date there fails the statement for all rows. */
export const freed = "IF(available_at IS NULL, NULL, UTC_TIMESTAMP(6))";

/** A row that came back into its lane. */
export interface Reopened {
  readonly lane: number;
  readonly seq: bigint;
}

/** One step for the releasing holds of these lanes. A hold is dropped only when no BLOCKED row of its aggregate is left. */
export async function releaseStep(
  own: Own,
  n: Names,
  lanes: readonly number[],
): Promise<{ readonly remain: boolean; readonly rows: readonly Reopened[] }> {
  const found = await own.run(`SELECT ${holdColumns} FROM ${n.holds} h WHERE h.releasing IN (${list(lanes)}) LIMIT ${holdsPerRelease}`);
  if (found.length === 0) return { remain: false, rows: [] };
  const holds = found.map((row) => ({ hold: holdOf(row), hash: numberOf(row, "hold_hash") }));
  const share = Math.min(rowsPerHold, Math.ceil(rowsPerRelease / holds.length));
  const blocked = await own.run(
    holds
      .map(
        ({ hash }, at) =>
          `(SELECT ${at} AS hold, seq FROM ${n.outbox} FORCE INDEX (blocked) WHERE blocked = ${hash} AND aggregate_type = ? AND aggregate_id = ?
            ORDER BY seq LIMIT ${share})`,
      )
      .join(" UNION ALL "),
    holds.flatMap(({ hold }) => [hold.aggregateType, hold.aggregateId]),
  );
  const rows = blocked.map((row) => ({ at: numberOf(row, "hold"), seq: bigOf(row, "seq") }));
  if (rows.length > 0)
    await own.change(
      `UPDATE ${n.outbox} FORCE INDEX (PRIMARY) SET status = 'PENDING', next_attempt_at = ${freed} WHERE seq IN (${list(rows.map(({ seq }) => seq))})`,
    );
  const last = new Map<number, bigint>();
  for (const { at, seq } of rows) if (seq > (last.get(at) ?? 0n)) last.set(at, seq);
  await writeHolds(
    own,
    n,
    holds.flatMap(({ hold }, at) => (last.has(at) ? [{ ...hold, freeTo: last.get(at)! }] : [])),
  );
  await dropHolds(
    own,
    n,
    holds.flatMap(({ hold }, at) => (last.has(at) ? [] : [hold])),
  );
  return {
    remain: rows.length > 0 || found.length === holdsPerRelease,
    rows: rows.map(({ at, seq }) => ({ lane: holds[at]!.hold.lane, seq })),
  };
}

async function dropHolds({ change }: Own, n: Names, holds: readonly Hold[]): Promise<void> {
  if (holds.length === 0) return;
  await change(
    `DELETE h FROM ${n.holds} h FORCE INDEX (PRIMARY) WHERE ${holds.map(() => "h.aggregate_type = ? AND h.aggregate_id = ?").join(" OR ")}`,
    holds.flatMap(({ aggregateType, aggregateId }) => [aggregateType, aggregateId]),
  );
}

/** Lets the longest waiting aggregates of a destination go on. */
export async function releaseDestination(
  own: Own,
  n: Names,
  lanes: readonly number[],
  destination: string,
  limit: number,
): Promise<number> {
  const rows = await own.run(
    `SELECT ${holdColumns} FROM ${n.holds} h WHERE h.destination = ? AND h.lane IN (${list(lanes)}) ORDER BY h.since, h.cause_seq LIMIT ${limit}`,
    [destination],
  );
  await writeHolds(
    own,
    n,
    rows.map((row) => ({ ...holdOf(row), destination: null, freeTo: 0n })),
  );
  const hasOwn = `EXISTS (SELECT 1 FROM ${n.destinations} e WHERE e.destination = h.destination AND e.lane = h.lane)`;
  const others = destination === otherTopics;
  const left = await own.run(
    `SELECT DISTINCT h.lane FROM ${n.holds} h WHERE ${others ? `h.destination IS NOT NULL AND NOT ${hasOwn}` : "h.destination = ?"} AND h.lane IN (${list(lanes)})`,
    others ? [] : [destination],
  );
  const waiting = new Set(left.map((row) => numberOf(row, "lane")));
  await own.change(
    `DELETE d FROM ${n.destinations} d FORCE INDEX (PRIMARY) WHERE d.destination = ? AND d.lane IN (${list(lanes.filter((lane) => !waiting.has(lane)))})`,
    [destination],
  );
  return rows.length;
}

/** Finds each topic by the index, however many aggregates wait for one. */
export async function waitingFor(run: Own["run"], n: Names, after: string, limit: number): Promise<readonly string[]> {
  const rows = await run(
    `SELECT CAST(d.destination AS BINARY) AS destination
     FROM (SELECT DISTINCT destination FROM ${n.holds} WHERE destination > ? ORDER BY destination LIMIT ${limit}) d ORDER BY d.destination`,
    [after],
  );
  return rows.map((row) => textOf(row, "destination"));
}
