import type { ByteBounds } from "../../core/within-bytes.ts";
import { blockedPerClaim, mayGo, narrowAtOnce, narrowWidth, rowsPerStep } from "../kit/claim.ts";
import type { PgRow, Run } from "./connection.ts";
import { heldColumns, heldOf, joinHold } from "./holds.ts";
import type { Names } from "./names.ts";
import { available, now, type Reach, ready } from "./pending.ts";
import { headColumns, list, payloadSize } from "./rows.ts";
import { maxHeadersText } from "../kit/stored.ts";

/** The byte bounds cover payloads and headers. */
export interface Scan extends ByteBounds {
  readonly run: Run;
  readonly names: Names;
  readonly lanes: readonly number[];
  readonly limit: number;
  /** This relay's windows that are not settled. */
  readonly open: readonly string[];
  /** Some events of these lanes are suspect. */
  readonly suspicious: boolean;
  readonly reach: Reach;
}

export interface Found {
  readonly row: PgRow;
  readonly seq: bigint;
  readonly lane: number;
  readonly failures: number;
  readonly deaths: number;
  /** How many of the window's bytes it takes. */
  readonly cost: number;
  /** Size of the payload in bytes, where it was not read with the row. */
  readonly bare: number | null;
  /** The payload is larger than `largest`, and will never be read. */
  readonly refused: boolean;
}

export interface Caught {
  readonly found: readonly Found[];
  readonly cut: boolean;
  /** The oldest transaction that was running when the pending rows were looked at. */
  readonly oldest: bigint;
  /** By lane, the number up to which the scan from its floor found no pending row; null where it found none at all. */
  readonly upTo: ReadonlyMap<number, bigint | null>;
}

/** At least this many rows of a lane are looked at. */
export const leastShare = 8;

/** The lengths are known without reading values that are stored out of line. */
const size = `${payloadSize}::bigint`; // a sum of sizes may exceed an integer
const isRefused = (largest: string): string => `${size} > ${largest}::bigint`;
/** Longer headers are not read. */
const costOf = (largest: string): string =>
  `(CASE WHEN ${isRefused(largest)} THEN 0 ELSE ${size} END + least(octet_length(o.headers::text), ${maxHeadersText}))`;
/** How many bytes the rows up to this one take, by seq. */
const upto = (largest: string): string => `sum(${costOf(largest)}) OVER (ORDER BY o.seq) AS upto`;
const fits = (bytes: string, largest: string): string => `o.upto <= ${bytes}::bigint AND NOT ${isRefused(largest)}`;
/** Rows include their payloads as far as the bounds allow. */
const columns = (
  ...bounds: [bytes: string, largest: string]
): string => `${headColumns}, ${costOf(bounds[1])} AS cost, ${isRefused(bounds[1])} AS refused,
  CASE WHEN NOT (${fits(...bounds)}) THEN ${size} END AS bare, CASE WHEN ${fits(...bounds)} THEN o.payload END AS payload,
  CASE WHEN ${fits(...bounds)} THEN encode(o.payload_bytes, 'hex') END AS payload_hex,
  o.lane, o.retry_count, ${heldColumns}, s.deaths, s.width`;
const joins = (n: Names): string => `${joinHold(n)}
  LEFT JOIN ${n.suspects} s ON s.seq = o.seq`;
const notOpen = (n: Names, open: string): string =>
  `o.seq NOT IN (SELECT unnest(w.seqs) FROM ${n.windows} w WHERE w."window" = ANY (${open}::text[]))`;
const notSuspect = (n: Names): string =>
  `NOT EXISTS (SELECT 1 FROM ${n.suspects} x WHERE x.aggregate_type = o.aggregate_type AND x.aggregate_id = o.aggregate_id)`;

/** Rows that `mayGo` will not let go. They leave the pending scan, whether or not their aggregate has suspects. */
const isHeld = (
  n: Names,
): string => `EXISTS (SELECT 1 FROM ${n.holds} h WHERE h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
  AND (h.free_to IS NULL AND (h.destination IS NOT NULL OR o.seq <> h.cause_seq) OR o.seq > h.free_to))`;

/**
 * Each lane's ready rows from its floor, in seq order. From the same snapshot come the oldest running transaction, and whether delayed
 * rows are available that were not made ready before.
 */
const pendingRows = ({ names: n, reach, suspicious }: Scan): string => `
SELECT pg_snapshot_xmin(pg_current_snapshot()) AS oldest, EXISTS (SELECT 1 FROM ${n.outbox} WHERE ${available} AND lane = ANY ($1::smallint[])) AS joins, f.*
FROM (SELECT 1) one
LEFT JOIN (
  SELECT ${columns("$5", "$6")}
  FROM (SELECT o.*, ${upto("$6")} FROM unnest($1::smallint[], $2::bigint[], $3::integer[]) AS l (lane, floor, want)
  CROSS JOIN LATERAL (
    ${ready(n, reach, "l.floor", `${notOpen(n, "$4")} ${suspicious ? `AND (${notSuspect(n)} OR ${isHeld(n)})` : ""}`, "l.want")}
  ) o) o ${joins(n)}
) f ON true`;

/**
 * Takes failed events that are due, then the pending rows of all lanes in one statement, with an equal share for each lane. What lanes
 * leave over goes to the lanes that have more, in further statements.
 *
 * Each statement has its own snapshot, and begins after the rows of the one before. So a later statement may take an event whose
 * predecessor became visible in between: see `overtaken`.
 */
export async function claimNormal(scan: Scan, floors: ReadonlyMap<number, bigint>, due: boolean): Promise<Caught> {
  const { run, limit } = scan;
  const catcher = catchRows(scan);
  const dueLimit = Math.ceil(limit / 2);
  const failed = due ? await dueRows(scan, dueLimit, notSuspect(scan.names)) : [];
  for (const row of failed) catcher.take(row);

  let oldest: bigint | null = null;
  const upTo = new Map<number, bigint | null>();
  /** Lanes in which a picked row may have a predecessor that was not picked. */
  const doubtful = new Set<number>();
  let behind = scan.lanes.map((lane) => ({ lane, after: floors.get(lane) ?? 0n }));
  while (behind.length > 0 && catcher.found.length < limit && catcher.blocked() < blockedPerClaim && catcher.room() > 0) {
    const share = Math.max(leastShare, Math.ceil((limit - catcher.found.length) / behind.length));
    const rows = await run(pendingRows(scan), [
      list(behind.map(({ lane }) => lane)),
      list(behind.map(({ after }) => after)),
      list(behind.map(() => share)),
      scan.open,
      catcher.room(),
      scan.largest,
    ]);
    const byLane = new Map<number, PgRow[]>(behind.map(({ lane }) => [lane, []]));
    for (const row of rows) if (row["seq"] !== null) byLane.get(Number(row["lane"]))!.push(row);
    for (const [lane, found] of byLane) {
      found.sort(bySeq);
      if (oldest === null) upTo.set(lane, found[0] === undefined ? null : BigInt(found[0]["seq"]!) - 1n);
    }
    if (oldest !== null || rows[0]!["joins"] === "t") for (const { lane } of behind) doubtful.add(lane);
    oldest ??= BigInt(rows[0]!["oldest"]!);
    for (const row of [...byLane.values()].flat()) catcher.take(row);
    behind = [...byLane]
      .filter(([, found]) => found.length === share)
      .map(([lane, found]) => ({ lane, after: BigInt(found.at(-1)!["seq"]!) }));
  }
  await catcher.block();
  const picked = within(fair(catcher.found, limit), scan.bytes);
  const dueSeqs = new Set(failed.map((row) => row["seq"]));
  const scanned = picked.filter(({ row, lane }) => doubtful.has(lane) && !dueSeqs.has(row["seq"]));
  const missed = await overtaken(scan, floors, scanned);
  const found = missed === null ? [] : picked.filter(({ row, seq }) => seq < (missed.get(aggregateOf(row)) ?? seq + 1n));
  return {
    found,
    cut: behind.length > 0 || failed.length === dueLimit || found.length < catcher.found.length,
    oldest: oldest ?? 0n,
    upTo: scan.suspicious ? new Map() : upTo,
  };
}

/**
 * A last look, when all is picked. For each aggregate, it finds the first event that lies before a picked one and was not picked: its
 * transaction committed between two scans of its lane, or it was delayed and has become available. Each picked event was visible to an
 * earlier scan, so all that its aggregate had committed before it, or with it, is visible here. Null when more events have become available
 * than one claim makes ready: they all go first.
 */
async function overtaken(
  { run, names: n, open, suspicious, reach }: Scan,
  floors: ReadonlyMap<number, bigint>,
  picked: readonly Found[],
): Promise<ReadonlyMap<string, bigint> | null> {
  const last = new Map(picked.map(({ lane, seq }) => [lane, seq])); // by seq, ascending
  if (last.size === 0) return new Map();
  const rows = await run(
    `WITH joining AS (SELECT aggregate_type, aggregate_id, seq FROM ${n.outbox} WHERE ${available} AND lane = ANY ($1::smallint[]) LIMIT ${rowsPerStep})
     SELECT o.aggregate_type, o.aggregate_id, min(o.seq) AS seq, (SELECT count(*) FROM joining) AS joining FROM (
       SELECT o.aggregate_type, o.aggregate_id, o.seq
       FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS l (lane, floor, last)
       CROSS JOIN LATERAL (${ready(n, reach, "l.floor", `o.seq < l.last AND NOT o.seq = ANY ($5::bigint[]) AND ${notOpen(n, "$4")} ${suspicious ? `AND ${notSuspect(n)}` : ""}`)}) o
       UNION ALL SELECT * FROM joining) o
     GROUP BY o.aggregate_type, o.aggregate_id`,
    [
      list(last.keys()),
      list([...last.keys()].map((lane) => floors.get(lane) ?? 0n)),
      list(last.values()),
      open,
      list(picked.map(({ seq }) => seq)),
    ],
  );
  if (Number(rows[0]?.["joining"]) === rowsPerStep) return null;
  return new Map(rows.map((row) => [aggregateOf(row), BigInt(row["seq"]!)]));
}

const aggregateOf = (row: PgRow): string => `${row["aggregate_type"]}\0${row["aggregate_id"]}`;

/** Keeps failed events, and the first events of each lane: when the shares exceed the limit, every lane gives up its last ones. */
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

/** The first events that fit into `bytes`. An event whose payload is still to be read goes alone. */
function within(found: readonly Found[], bytes: number): readonly Found[] {
  let taken = 0;
  const end = found.findIndex((one) => (taken += one.cost) > bytes || isToBeRead(one));
  return end === -1 ? found : found.slice(0, Math.max(1, end));
}

const isToBeRead = ({ bare, refused }: Found): boolean => bare !== null && !refused;

const dueFrom = (n: Names, which: string): string => `${n.outbox} o
  WHERE o.status = 'FAILED' AND o.next_attempt_at <= ${now} AND o.lane = ANY ($1::smallint[]) AND ${notOpen(n, "$2")} AND ${which}
  ORDER BY o.next_attempt_at`;

const dueRows = ({ run, names, lanes, open, bytes, largest }: Scan, limit: number, which: string): Promise<readonly PgRow[]> =>
  run(
    `SELECT ${columns("$4", "$5")} FROM (SELECT o.*, ${upto("$5")} FROM (SELECT * FROM ${dueFrom(names, which)} LIMIT $3) o) o ${joins(names)}
     ORDER BY o.next_attempt_at`,
    [list(lanes), open, limit, bytes, largest],
  );

/**
 * Rows that only a narrow claim may take: the events of a dead relay's window, and earlier events of their aggregates, because order
 * matters more than caution.
 */
const beforeSuspect = (n: Names): string =>
  `o.seq <= (SELECT max(x.seq) FROM ${n.suspects} x WHERE x.aggregate_type = o.aggregate_type AND x.aggregate_id = o.aggregate_id)`;

const narrowFrom = ({
  names: n,
  reach,
}: Scan): string => `(SELECT x.lane, max(x.seq) AS last FROM ${n.suspects} x WHERE x.lane = ANY ($1::smallint[]) GROUP BY x.lane) l
  CROSS JOIN LATERAL (
    ${ready(n, reach, "0", `o.seq <= l.last AND ${notOpen(n, "$2")} AND ${beforeSuspect(n)}`, String(narrowAtOnce))}) o`;

async function narrowRows(scan: Scan): Promise<readonly PgRow[]> {
  if (!scan.suspicious) return [];
  const { run, names, lanes, open, bytes, largest } = scan;
  const rows = await run(`SELECT ${columns("$3", "$4")} FROM (SELECT o.*, ${upto("$4")} FROM ${narrowFrom(scan)}) o ${joins(names)}`, [
    list(lanes),
    open,
    bytes,
    largest,
  ]);
  const due = await dueRows(scan, narrowAtOnce, beforeSuspect(names));
  return [...rows, ...due].sort(bySeq);
}

export async function countNarrow(scan: Scan): Promise<number> {
  const { run, names, lanes, open, suspicious } = scan;
  if (!suspicious) return 0;
  const [row] = await run(
    `SELECT (SELECT count(*) FROM ${narrowFrom(scan)}) + (SELECT count(*) FROM (SELECT 1 FROM ${dueFrom(names, beforeSuspect(names))} LIMIT ${narrowAtOnce}) o) AS n`,
    [list(lanes), open],
  );
  return Number(row!["n"]);
}

export async function claimNarrow(scan: Scan): Promise<Caught> {
  const catcher = catchRows(scan);
  for (const row of await narrowRows(scan)) catcher.take(row);
  await catcher.block();
  const widths = catcher.found.map(({ row }) => Number(row["width"] ?? Infinity));
  const found = within(catcher.found.slice(0, narrowWidth(widths, scan.limit)), scan.bytes);
  return { found, cut: found.length < catcher.found.length, oldest: 0n, upTo: new Map() };
}

interface Catcher {
  readonly found: Found[];
  take(row: PgRow): void;
  blocked(): number;
  /** How many more bytes may be read; 0 once a payload was left to be read later. */
  room(): number;
  block(): Promise<void>;
}

/** Sorts rows into those that may go and those whose aggregate is held; the held ones leave the pending scan. */
function catchRows({ run, names, bytes }: Scan): Catcher {
  const found: Found[] = [];
  const blocked: bigint[] = [];
  let room = bytes;
  return {
    found,
    take(row) {
      const seq = BigInt(row["seq"]!);
      const one: Found = {
        row,
        seq,
        lane: Number(row["lane"]),
        failures: Math.max(0, Number(row["retry_count"])),
        deaths: Number(row["deaths"] ?? 0),
        cost: Number(row["cost"]),
        bare: (row["bare"] ?? null) === null ? null : Number(row["bare"]),
        refused: row["refused"] === "t",
      };
      room = isToBeRead(one) ? 0 : Math.max(0, room - one.cost);
      if (mayGo(seq, heldOf(row))) found.push(one);
      else blocked.push(seq);
    },
    blocked: () => blocked.length,
    room: () => room,
    async block() {
      if (blocked.length === 0) return;
      await run(`UPDATE ${names.outbox} SET status = 'BLOCKED', next_attempt_at = NULL WHERE seq = ANY ($1::bigint[])`, [list(blocked)]);
    },
  };
}

const bySeq = (a: PgRow, b: PgRow): number => (BigInt(a["seq"]!) < BigInt(b["seq"]!) ? -1 : 1);
