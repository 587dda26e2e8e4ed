import type { PgRow, Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { pending } from "./pending.ts";
import { envelopeColumns, list } from "./rows.ts";

export interface Scan {
  readonly run: Run;
  readonly names: Names;
  readonly lanes: readonly number[];
  readonly limit: number;
  /** This relay's windows that are not settled. */
  readonly open: readonly string[];
  /** Some events of these lanes are suspect. */
  readonly suspicious: boolean;
}

export interface Found {
  readonly row: PgRow;
  readonly seq: bigint;
  readonly lane: number;
  readonly failures: number;
  readonly deaths: number;
}

export interface Caught {
  readonly found: readonly Found[];
  readonly cut: boolean;
  /** The oldest transaction that was running when the pending rows were looked at. */
  readonly oldest: bigint;
  /** The lowest pending row that was met in each lane, by a scan from its floor. */
  readonly lowest: ReadonlyMap<number, bigint | null>;
}

/** How many rows of held aggregates one claim takes out of its way. */
const blockedPerClaim = 5_000;
const leastShare = 8;

const columns = `${envelopeColumns}, o.lane, o.retry_count, h.cause_seq, h.destination, h.free_to, s.deaths, s.width`;
const joins = (n: Names): string => `LEFT JOIN ${n.holds} h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
  LEFT JOIN ${n.suspects} s ON s.seq = o.seq`;
const notOpen = (n: Names, open: string): string =>
  `o.seq NOT IN (SELECT unnest(w.seqs) FROM ${n.windows} w WHERE w."window" = ANY (${open}::text[]))`;
const notSuspect = (n: Names): string =>
  `NOT EXISTS (SELECT 1 FROM ${n.suspects} x WHERE x.aggregate_type = o.aggregate_type AND x.aggregate_id = o.aggregate_id)`;

/** What `mayGo` will not let go: it leaves the pending scan, whether or not its aggregate has suspects. */
const held = (
  n: Names,
): string => `EXISTS (SELECT 1 FROM ${n.holds} h WHERE h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
  AND (h.free_to IS NULL AND (h.destination IS NOT NULL OR o.seq <> h.cause_seq) OR o.seq > h.free_to))`;

/** Each lane's ready rows from its floor, in seq order; the rows come with the oldest running transaction of the same snapshot. */
const pendingRows = (n: Names, suspicious: boolean): string => `
SELECT pg_snapshot_xmin(pg_current_snapshot()) AS oldest, f.*
FROM (SELECT 1) one
LEFT JOIN (
  SELECT ${columns}
  FROM unnest($1::smallint[], $2::bigint[], $3::integer[]) AS l (lane, floor, want)
  CROSS JOIN LATERAL (
    SELECT * FROM ${n.outbox} o WHERE o.lane = l.lane AND ${pending} AND o.seq > l.floor AND o.seq <= $5::bigint AND ${notOpen(n, "$4")}
    ${suspicious ? `AND (${notSuspect(n)} OR ${held(n)})` : ""}
    ORDER BY o.seq LIMIT l.want
  ) o ${joins(n)}
) f ON true`;

const highest = 2n ** 63n - 1n;

/**
 * Failed events whose turn has come, then the pending rows of all lanes in one statement: every lane an equal share
 * first, and what lanes leave over goes to those that are behind, in statements that follow.
 *
 * Each statement has a snapshot of its own, and begins behind the rows of the one before. So a later one must take no event
 * whose predecessor became visible in between. `drawn` is the highest number that had been drawn before the first
 * statement looked. An event up to there was added after its aggregate's earlier events had committed, so the first
 * statement saw those. What is above it waits for the next claim.
 */
export async function claimNormal(scan: Scan, floors: ReadonlyMap<number, bigint>, drawn: bigint, due: boolean): Promise<Caught> {
  const { run, names, limit } = scan;
  const catcher = catchRows(scan);
  const dueLimit = Math.ceil(limit / 2);
  const failed = due ? await dueRows(scan, dueLimit, notSuspect(names)) : [];
  for (const row of failed) catcher.take(row);

  let oldest: bigint | null = null;
  const lowest = new Map<number, bigint | null>();
  let behind = scan.lanes.map((lane) => ({ lane, after: floors.get(lane) ?? 0n }));
  while (behind.length > 0 && catcher.found.length < limit && catcher.blocked() < blockedPerClaim) {
    const share = Math.max(leastShare, Math.ceil((limit - catcher.found.length) / behind.length));
    const rows = await run(pendingRows(names, scan.suspicious), [
      list(behind.map(({ lane }) => lane)),
      list(behind.map(({ after }) => after)),
      list(behind.map(() => share)),
      scan.open,
      oldest === null ? highest : drawn,
    ]);
    const byLane = new Map<number, PgRow[]>(behind.map(({ lane }) => [lane, []]));
    for (const row of rows) if (row["seq"] !== null) byLane.get(Number(row["lane"]))!.push(row);
    for (const [lane, found] of byLane) {
      found.sort(bySeq);
      if (oldest === null) lowest.set(lane, found[0] === undefined ? null : BigInt(found[0]["seq"]!));
    }
    oldest ??= BigInt(rows[0]!["oldest"]!);
    for (const row of [...byLane.values()].flat()) catcher.take(row);
    behind = [...byLane]
      .filter(([, found]) => found.length === share)
      .map(([lane, found]) => ({ lane, after: BigInt(found.at(-1)!["seq"]!) }));
  }
  await catcher.block();
  const found = fair(catcher.found, limit);
  return {
    found,
    cut: behind.length > 0 || failed.length === dueLimit || found.length < catcher.found.length,
    oldest: oldest ?? 0n,
    lowest: scan.suspicious ? new Map() : lowest,
  };
}

/** The failed ones, and of each lane the first ones: when the shares add up to more than the limit, every lane gives up its last. */
function fair(found: readonly Found[], limit: number): readonly Found[] {
  if (found.length <= limit) return [...found].sort((a, b) => (a.seq < b.seq ? -1 : 1));
  const ranks = new Map<number, number>();
  const ranked = found.map((one) => {
    const rank = one.failures > 0 ? -1 : (ranks.get(one.lane) ?? 0);
    if (one.failures === 0) ranks.set(one.lane, rank + 1);
    return { one, rank };
  });
  const kept = ranked.sort((a, b) => a.rank - b.rank || (a.one.seq < b.one.seq ? -1 : 1)).slice(0, limit);
  return kept.map(({ one }) => one).sort((a, b) => (a.seq < b.seq ? -1 : 1));
}

const dueRows = ({ run, names, lanes, open }: Scan, limit: number, which: string): Promise<readonly PgRow[]> =>
  run(
    `SELECT ${columns} FROM ${names.outbox} o ${joins(names)}
     WHERE o.status = 'FAILED' AND o.next_attempt_at <= clock_timestamp() AND o.lane = ANY ($1::smallint[]) AND ${notOpen(names, "$2")} AND ${which}
     ORDER BY o.next_attempt_at LIMIT $3`,
    [list(lanes), open, limit],
  );

/**
 * Rows that only a narrow window may take: what was in a dead relay's window, and whatever comes before it in its
 * aggregate, since order goes before caution.
 */
const beforeSuspect = (n: Names): string =>
  `o.seq <= (SELECT max(x.seq) FROM ${n.suspects} x WHERE x.aggregate_type = o.aggregate_type AND x.aggregate_id = o.aggregate_id)`;
const narrowAtOnce = 1_000;

async function narrowRows(scan: Scan): Promise<readonly PgRow[]> {
  if (!scan.suspicious) return [];
  const { run, names, lanes, open } = scan;
  const rows = await run(
    `SELECT ${columns}
     FROM (SELECT x.lane, max(x.seq) AS last FROM ${names.suspects} x WHERE x.lane = ANY ($1::smallint[]) GROUP BY x.lane) l
     CROSS JOIN LATERAL (
       SELECT * FROM ${names.outbox} o WHERE o.lane = l.lane AND ${pending} AND o.seq <= l.last AND ${notOpen(names, "$2")} AND ${beforeSuspect(names)}
       ORDER BY o.seq LIMIT ${narrowAtOnce}
     ) o ${joins(names)}`,
    [list(lanes), open],
  );
  const due = await dueRows(scan, narrowAtOnce, beforeSuspect(names));
  return [...rows, ...due].sort(bySeq);
}

export const countNarrow = async (scan: Scan): Promise<number> => (await narrowRows(scan)).length;

/** A tenth of the window they died in at a time, down to one. */
export async function claimNarrow(scan: Scan): Promise<Caught> {
  const catcher = catchRows(scan);
  for (const row of await narrowRows(scan)) catcher.take(row);
  await catcher.block();
  const width = Math.min(...catcher.found.map(({ row }) => Number(row["width"] ?? Infinity)));
  const found = catcher.found.slice(0, Math.min(scan.limit, Math.max(1, Math.floor(Math.min(width, scan.limit * 10) / 10))));
  return { found, cut: found.length < catcher.found.length, oldest: 0n, lowest: new Map() };
}

/** Sorts rows into those that may go and those whose aggregate is held; the held ones leave the pending scan. */
function catchRows({ run, names }: Scan): { found: Found[]; take(row: PgRow): void; blocked(): number; block(): Promise<void> } {
  const found: Found[] = [];
  const blocked: bigint[] = [];
  return {
    found,
    take(row) {
      const seq = BigInt(row["seq"]!);
      if (mayGo(row, seq))
        found.push({ row, seq, lane: Number(row["lane"]), failures: Number(row["retry_count"]), deaths: Number(row["deaths"] ?? 0) });
      else blocked.push(seq);
    },
    blocked: () => blocked.length,
    async block() {
      if (blocked.length === 0) return;
      await run(`UPDATE ${names.outbox} SET status = 'BLOCKED', next_attempt_at = NULL WHERE seq = ANY ($1::bigint[])`, [list(blocked)]);
    },
  };
}

function mayGo(row: PgRow, seq: bigint): boolean {
  if (row["cause_seq"] === null) return true;
  if (row["free_to"] !== null) return seq <= BigInt(row["free_to"]!);
  return row["destination"] === null && seq === BigInt(row["cause_seq"]!);
}

const bySeq = (a: PgRow, b: PgRow): number => (BigInt(a["seq"]!) < BigInt(b["seq"]!) ? -1 : 1);
