import { type ByteBounds, isRefused, type Weight, withinBytes } from "../../core/within-bytes.ts";
import type { SqliteRow, Statements } from "../../drivers/sqlite/connection.ts";
import { blockedPerClaim, mayGo, narrowAtOnce, narrowWidth, rotated } from "../kit/claim.ts";
import { createBudget } from "./budget.ts";
import { heldColumns, heldOf } from "./holds.ts";
import { pending } from "./predicates.ts";
import { lightColumns, nameOf } from "./rows.ts";

interface Scan extends ByteBounds {
  readonly statements: Statements;
  readonly relay: string;
  readonly lanes: readonly number[];
  readonly now: string;
  readonly limit: number;
  /** Aggregates with an event that cannot be claimed yet: later ones must not overtake it. */
  readonly waiting: ReadonlySet<string>;
}

/** The rest of the row is read once the window's rows are known. */
export interface Found {
  readonly seq: number;
  readonly weight: Weight;
  readonly lane: number;
  readonly deaths: number;
  /** The width of the dead relay's window that the event was in. */
  readonly width: number;
}

const columns = `${lightColumns}, ${heldColumns}, s.deaths, s.width`;
const joins = `LEFT JOIN waybill_holds h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
               LEFT JOIN waybill_suspects s ON s.seq = o.seq`;
const notOpen = "o.seq NOT IN (SELECT value FROM json_each(?1))";
const notSuspect =
  "NOT EXISTS (SELECT 1 FROM waybill_suspects x WHERE x.aggregate_type = o.aggregate_type AND x.aggregate_id = o.aggregate_id)";

/** Rows that `mayGo` refuses. They leave the pending scan, whether or not their aggregate has suspects. */
const held = "(h.free_to IS NULL AND (h.destination IS NOT NULL OR o.seq <> h.cause_seq) AND h.cause_seq IS NOT NULL OR o.seq > h.free_to)";

/**
 * Takes failed events that are due, then each lane's pending rows in seq order. Every lane gets an equal share first, and what lanes leave
 * over goes to lanes that have more rows.
 */
export function claimNormal(scan: Scan, turn: number): { found: readonly Found[]; cut: boolean } {
  const { statements, now } = scan;
  const lanes = JSON.stringify(scan.lanes);
  const open = openSeqs(scan);
  const catcher = catchRows(scan);
  const dueLimit = Math.ceil(scan.limit / 2);
  const due = statements.all(
    `SELECT ${columns}, o.lane FROM outbox o ${joins} WHERE o.status = 'FAILED' AND o.next_attempt_at <= ?2 AND o.lane IN (SELECT value FROM json_each(?3))
     AND ${notOpen} AND ${notSuspect} ORDER BY o.next_attempt_at LIMIT ?4`,
    [JSON.stringify([...open.values()].flat()), now, lanes, dueLimit],
  );
  for (const row of due) catcher.take(row, Number(row["lane"]));

  let behind = rotated(scan.lanes, turn).map((lane) => ({ lane, after: Number.MIN_SAFE_INTEGER }));
  while (behind.length > 0 && catcher.found.length < scan.limit && catcher.passed() < blockedPerClaim) {
    const share = Math.ceil((scan.limit - catcher.found.length) / behind.length);
    const full: typeof behind = [];
    for (const { lane, after } of behind) {
      const want = Math.min(share, scan.limit - catcher.found.length);
      if (want === 0) {
        full.push({ lane, after });
        continue;
      }
      const rows = statements.all(
        `SELECT ${columns} FROM outbox o ${joins} WHERE o.lane = ?2 AND ${pending} AND o.seq > ?3
         AND ${notOpen} AND (${notSuspect} OR ${held}) ORDER BY o.seq LIMIT ?4`,
        [JSON.stringify(open.get(lane) ?? []), lane, after, want],
      );
      for (const row of rows) catcher.take(row, lane);
      if (rows.length === want) full.push({ lane, after: Number(rows.at(-1)!["seq"]) });
    }
    behind = full;
  }
  catcher.block();
  // A prefix by seq: no event overtakes an earlier one of its aggregate that was cut off.
  const found = withinBytes(catcher.found.sort(bySeq), scan, weightOf);
  return { found, cut: behind.length > 0 || due.length === dueLimit || catcher.left() || found.length < catcher.found.length };
}

/** Rows that only a narrow claim may take: suspects, and all earlier events of their aggregates, since order goes before caution. */
const beforeSuspect =
  "o.seq <= (SELECT max(x.seq) FROM waybill_suspects x WHERE x.aggregate_type = o.aggregate_type AND x.aggregate_id = o.aggregate_id)";

type Look = Pick<Scan, "statements" | "relay" | "lanes" | "now">;

function narrowRows(scan: Look): readonly SqliteRow[] {
  const { statements, now } = scan;
  const suspects = statements.all(
    "SELECT lane, max(seq) AS last FROM waybill_suspects WHERE lane IN (SELECT value FROM json_each(?)) GROUP BY lane",
    [JSON.stringify(scan.lanes)],
  );
  if (suspects.length === 0) return [];
  const open = openSeqs(scan);
  const rows = suspects.flatMap(({ lane, last }) =>
    statements.all(
      `SELECT ${columns}, ?2 AS lane FROM outbox o ${joins} WHERE o.lane = ?2 AND ${pending} AND o.seq <= ?3 AND ${notOpen} AND ${beforeSuspect} ORDER BY o.seq LIMIT ${narrowAtOnce}`,
      [JSON.stringify(open.get(Number(lane)) ?? []), lane!, last!],
    ),
  );
  const due = statements.all(
    `SELECT ${columns}, o.lane FROM outbox o ${joins} WHERE o.status = 'FAILED' AND o.next_attempt_at <= ?2 AND o.lane IN (SELECT value FROM json_each(?3))
     AND ${notOpen} AND ${beforeSuspect} ORDER BY o.next_attempt_at LIMIT ${narrowAtOnce}`,
    [JSON.stringify([...open.values()].flat()), now, JSON.stringify(suspects.map(({ lane }) => lane))],
  );
  return [...rows, ...due].sort((a, b) => Number(a["seq"]) - Number(b["seq"]));
}

export const countNarrow = (scan: Look): number => narrowRows(scan).length;

export function claimNarrow(scan: Scan): { found: readonly Found[]; cut: boolean } {
  const catcher = catchRows(scan);
  for (const row of narrowRows(scan)) catcher.take(row, Number(row["lane"]));
  catcher.block();
  const widths = catcher.found.map(({ width }) => width);
  const found = withinBytes(catcher.found.slice(0, narrowWidth(widths, scan.limit)), scan, weightOf);
  return { found, cut: catcher.left() || found.length < catcher.found.length };
}

/** The seqs that this relay already has in its windows, by lane. */
function openSeqs({ statements, relay }: Pick<Scan, "statements" | "relay">): ReadonlyMap<number, readonly number[]> {
  const open = new Map<number, number[]>();
  for (const row of statements.all("SELECT lane, seqs FROM waybill_windows WHERE relay = ?", [relay])) {
    const lane = Number(row["lane"]);
    open.set(lane, [...(open.get(lane) ?? []), ...(JSON.parse(String(row["seqs"])) as number[])]);
  }
  return open;
}

interface Catcher {
  readonly found: Found[];
  take(row: SqliteRow, lane: number): void;
  /** How many rows were seen and not taken. */
  passed(): number;
  /** Whether rows were passed over that another claim may take. */
  left(): boolean;
  block(): void;
}

/** Sorts rows into those that may go and those whose aggregate is held; the held ones leave the pending scan. */
function catchRows(scan: Scan): Catcher {
  const { statements } = scan;
  const found: Found[] = [];
  const held: number[] = [];
  const waiting = new Set(scan.waiting);
  const parking = createBudget();
  const blocking = createBudget();
  let passed = 0;
  return {
    found,
    take(row, lane) {
      const seq = Number(row["seq"]);
      const weight = { payload: Number(row["size"]), headers: Number(row["headers_size"]) };
      const aggregate = nameOf(row);
      const free = mayGo(BigInt(seq), heldOf(row));
      if (!free && blocking.take(weight.payload)) held.push(seq);
      else if (free && !waiting.has(aggregate) && (!isRefused(weight.payload, scan) || parking.take(weight.payload)))
        return void found.push({ seq, weight, lane, deaths: Number(row["deaths"] ?? 0), width: Number(row["width"] ?? Infinity) });
      else if (free) waiting.add(aggregate);
      passed++;
    },
    passed: () => passed,
    left: () => waiting.size > 0 || held.length < passed,
    block() {
      if (held.length > 0)
        statements.run("UPDATE outbox SET status = 'BLOCKED', next_attempt_at = NULL WHERE seq IN (SELECT value FROM json_each(?))", [
          JSON.stringify(held),
        ]);
    },
  };
}

const bySeq = (a: Found, b: Found): number => a.seq - b.seq;
const weightOf = ({ weight }: Found): Weight => weight;
