import { aggregateKey } from "../../core/event.ts";
import { type ByteBounds, costOf, withinBytes } from "../../core/within-bytes.ts";
import { blockedPerClaim, mayGo, narrowAtOnce, narrowWidth, rotated } from "../kit/claim.ts";
import type { MysqlRow, MysqlSession } from "./connection.ts";
import { heldColumns, heldOf } from "./holds.ts";
import type { Names } from "./names.ts";
import type { ReadPace } from "./pace.ts";
import { createPending, groupsOf, type Pending } from "./pending.ts";
import { bigOf, bigOrNull, envelopeColumns, lightColumns, numberOf, textOf, weightOf } from "./rows.ts";
import { list } from "./values.ts";

export interface Scan extends ByteBounds {
  readonly session: Pick<MysqlSession, "run" | "change" | "server">;
  readonly names: Names;
  readonly lanes: readonly number[];
  readonly limit: number;
  readonly pace: ReadPace;
  /** The events in this relay's open windows, by lane. */
  readonly open: ReadonlyMap<number, readonly bigint[]>;
  /** Some events of these lanes are suspect. */
  readonly suspicious: boolean;
  floorOf(lane: number): bigint;
}

export interface ClaimTurn {
  readonly number: number;
  probe(look: () => Promise<void>): Promise<void>;
}

export interface Found {
  readonly row: MysqlRow;
  readonly seq: bigint;
  readonly lane: number;
  readonly failures: number;
  readonly deaths: number;
}

interface Caught {
  readonly found: readonly Found[];
  readonly cut: boolean;
  /** The lowest pending row of each lane that was scanned from its floor. */
  readonly lowest: ReadonlyMap<number, bigint | null>;
}

const withRelay = (columns: string): string => `${columns}, o.lane, o.retry_count, ${heldColumns}, s.deaths, s.width`;
const joins = (n: Names): string => `LEFT JOIN ${n.holds} h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
  LEFT JOIN ${n.suspects} s ON s.seq = o.seq`;
/** The `+ 0` keeps the optimiser from making a range of every gap between the numbers. */
const notOpen = ({ open }: Scan): string => {
  const seqs = [...open.values()].flat();
  return seqs.length === 0 ? "" : `AND (o.seq + 0) NOT IN (${list(seqs)})`;
};
const notSuspect = (n: Names): string =>
  `NOT EXISTS (SELECT 1 FROM ${n.suspects} x WHERE x.aggregate_type = o.aggregate_type AND x.aggregate_id = o.aggregate_id)`;
/** Rows that `mayGo` refuses: they leave the pending scan, whether or not their aggregate has suspects. */
const held = (
  n: Names,
): string => `EXISTS (SELECT 1 FROM ${n.holds} y WHERE y.aggregate_type = o.aggregate_type AND y.aggregate_id = o.aggregate_id
  AND (y.free_to IS NULL AND (y.destination IS NOT NULL OR o.seq <> y.cause_seq) OR o.seq > y.free_to))`;

/** Takes failed events that are due, then pending rows: an equal share for every lane first, and the rest for lanes with a backlog. */
export async function claimNormal(scan: Scan, turn: ClaimTurn, due: boolean): Promise<Caught> {
  const { limit, names: n } = scan;
  const catcher = catchRows(scan);
  const dueLimit = Math.ceil(limit / 2);
  const reader = createReader(scan);
  const failed = due ? await dueRows(scan, dueLimit, notSuspect(n)) : [];
  for (const row of await reader.read(failed.map(seqOf))) catcher.take(row);

  const pending = createPending({
    run: scan.session.run,
    names: n,
    groups: groupsOf(scan.lanes, scan.floorOf),
    which: `${notOpen(scan)} ${scan.suspicious ? `AND (${notSuspect(n)} OR ${held(n)})` : ""}`,
    lanes: rotated(scan.lanes, turn.number),
    limit,
    probe: turn.probe,
  });
  const chain = createChain();
  while (catcher.found.length < limit && catcher.blocked() < blockedPerClaim && !reader.full()) {
    const picked = await pending.pick(limit - catcher.found.length);
    if (picked.length === 0) break;
    for (const row of chain.add(await reader.read(picked))) catcher.take(row);
  }
  const missed = await missedRows(scan, pending, chain);
  for (const row of missed ?? []) catcher.take(row);
  await catcher.block();
  const found = missed === null ? [] : fitting(catcher.found.sort(bySeq).slice(0, limit), scan);
  return {
    found,
    cut: reader.left() || pending.more() || failed.length === dueLimit || found.length < catcher.found.length,
    lowest: scan.suspicious ? new Map() : pending.lowest(),
  };
}

const fitting = (found: readonly Found[], bounds: ByteBounds): readonly Found[] => withinBytes(found, bounds, ({ row }) => weightOf(row));

/** A payload is read with its row if a full window of such payloads would fit. Most do, and need no second statement. */
const wholeRows = ({ names: n, bytes, largest, limit }: Scan, seqs: readonly bigint[]): string =>
  `SELECT ${withRelay(envelopeColumns(Math.min(largest, Math.floor(bytes / limit))))} FROM ${n.outbox} o FORCE INDEX (PRIMARY) ${joins(n)} WHERE o.seq IN (${list(seqs)})`;

interface Reader {
  /** In the order given, until the bytes of a window are reached. */
  read(seqs: readonly bigint[]): Promise<readonly MysqlRow[]>;
  full(): boolean;
  /** Whether something was not read any more. */
  left(): boolean;
}

/** How many payload bytes one claim makes the server walk through, those that are not sent among them. */
const mostWalked = 256 * 1024 * 1024;

/** InnoDB reads a whole payload to find its length, so large rows are read a few at a time. */
function createReader(scan: Scan, most = { bytes: scan.bytes, walked: mostWalked }): Reader {
  let cost = 0;
  let walked = 0;
  let left = false;
  const full = (): boolean => cost > most.bytes || walked > most.walked;
  return {
    full,
    left: () => left,
    async read(seqs) {
      const rows: MysqlRow[] = [];
      for (let at = 0; at < seqs.length && !left;) {
        left = full();
        if (left) break;
        const read = await scan.pace.read(scan.session, seqs.slice(at), (some) => wholeRows(scan, some));
        const weights = read.rows.map(weightOf);
        const bytesWalked = weights.reduce((sum, { payload, headers }) => sum + payload + headers, 0);
        scan.pace.learn(read.count, bytesWalked, scan.bytes);
        cost += weights.reduce((sum, weight) => sum + costOf(weight, scan), 0);
        walked += bytesWalked;
        at += read.count;
        rows.push(...read.rows);
      }
      return rows;
    },
  };
}

/** The last event of each aggregate that was picked, and of all. */
interface Chain {
  readonly last: bigint;
  /** Whether a later event of the row's aggregate was picked. */
  precedes(row: MysqlRow): boolean;
  add(rows: readonly MysqlRow[]): readonly MysqlRow[];
}

function createChain(): Chain {
  const ends = new Map<string, bigint>();
  let last = 0n;
  return {
    get last() {
      return last;
    },
    precedes: (row) => bigOf(row, "seq") < (ends.get(aggregateOf(row)) ?? 0n),
    add(rows) {
      for (const row of rows) {
        const [key, seq] = [aggregateOf(row), bigOf(row, "seq")];
        if (seq > (ends.get(key) ?? 0n)) ends.set(key, seq);
        if (seq > last) last = seq;
      }
      return rows;
    },
  };
}

/**
 * Each look of a claim has its own snapshot, and MariaDB takes one while transactions go on committing. So a look may show the second event
 * of an aggregate although no look before showed the first. The last look comes when everything is picked: by then, every event that was
 * committed before a picked one is visible. An event that only the last look shows is taken if it precedes a picked event of its aggregate,
 * and otherwise left for the next claim. The same goes for delayed rows that have become available by then.
 */
async function missedRows(scan: Scan, pending: Pick<Pending, "missed">, chain: Chain): Promise<readonly MysqlRow[] | null> {
  const missed = chain.last === 0n ? [] : await pending.missed(chain.last, chain.precedes);
  if (missed === null) return null;
  if (missed.length === 0) return [];
  const rows = await scan.session.run(
    `SELECT ${lightColumns} FROM ${scan.names.outbox} o FORCE INDEX (PRIMARY) WHERE o.seq IN (${list(missed)})`,
  );
  return createReader(scan, { bytes: Infinity, walked: Infinity }).read(rows.filter(chain.precedes).map(seqOf));
}

const aggregateOf = (row: MysqlRow): string =>
  aggregateKey({ aggregateType: textOf(row, "aggregate_type"), aggregateId: textOf(row, "aggregate_id") });

const dueRows = (scan: Scan, limit: number, which: string): Promise<readonly MysqlRow[]> =>
  scan.session.run(
    `SELECT ${withRelay(lightColumns)} FROM ${scan.names.outbox} o FORCE INDEX (due) ${joins(scan.names)}
     WHERE o.due_at <= UTC_TIMESTAMP(6) AND o.status = 'FAILED' AND o.lane IN (${list(scan.lanes)}) ${notOpen(scan)} AND ${which}
     ORDER BY o.due_at LIMIT ${limit}`,
  );

/** Rows that only a narrow claim may take: suspects, and earlier events of their aggregates, since order matters more than caution. */
const beforeSuspect = (n: Names): string =>
  `o.seq <= (SELECT MAX(x.seq) FROM ${n.suspects} x WHERE x.aggregate_type = o.aggregate_type AND x.aggregate_id = o.aggregate_id)`;

/** Without what only `wholeRows` reads. */
export async function narrowRows(scan: Scan): Promise<readonly MysqlRow[]> {
  if (!scan.suspicious) return [];
  const { session, names: n } = scan;
  const suspects = await session.run(`SELECT lane, MAX(seq) AS last FROM ${n.suspects} WHERE lane IN (${list(scan.lanes)}) GROUP BY lane`);
  if (suspects.length === 0) return [];
  const last = suspects.map((row) => bigOf(row, "last")).reduce((a, b) => (a > b ? a : b));
  const lanes = suspects.map((row) => numberOf(row, "lane"));
  const rows = await session.run(
    groupsOf(lanes, scan.floorOf)
      .map(
        (group) => `(SELECT ${withRelay(lightColumns)} FROM ${n.outbox} o FORCE INDEX (ready) ${joins(n)}
          WHERE o.ready = 1 AND o.seq > ${group.floor} AND o.seq <= ${last} AND o.lane IN (${list(group.lanes)}) ${notOpen(scan)} AND ${beforeSuspect(n)}
          ORDER BY o.seq LIMIT ${narrowAtOnce})`,
      )
      .join(" UNION ALL "),
  );
  const due = await dueRows(scan, narrowAtOnce, beforeSuspect(n));
  return [...rows, ...due].sort((a, b) => ascending(bigOf(a, "seq"), bigOf(b, "seq")));
}

export async function claimNarrow(scan: Scan): Promise<Caught> {
  const catcher = catchRows(scan);
  for (const row of await narrowRows(scan)) catcher.take(row);
  await catcher.block();
  const widths = catcher.found.map(({ row }) => (row["width"] === null ? Infinity : numberOf(row, "width")));
  const reader = createReader(scan);
  const rows = await reader.read(catcher.found.slice(0, narrowWidth(widths, scan.limit)).map(({ seq }) => seq));
  const found = fitting(rows.map(foundOf).sort(bySeq), scan);
  return { found, cut: found.length < catcher.found.length, lowest: new Map() };
}

/** Sorts rows into those that may go and those whose aggregate is held; the held ones leave the pending scan. */
function catchRows({ session, names }: Scan): { found: Found[]; take(row: MysqlRow): void; blocked(): number; block(): Promise<void> } {
  const found: Found[] = [];
  const blocked: bigint[] = [];
  return {
    found,
    take(row) {
      const each = foundOf(row);
      if (mayGo(each.seq, heldOf(row))) found.push(each);
      else blocked.push(each.seq);
    },
    blocked: () => blocked.length,
    async block() {
      if (blocked.length === 0) return;
      await session.change(
        `UPDATE ${names.outbox} FORCE INDEX (PRIMARY) SET status = 'BLOCKED', next_attempt_at = NULL WHERE seq IN (${list(blocked)})`,
      );
    },
  };
}

export const foundOf = (row: MysqlRow): Found => ({
  row,
  seq: bigOf(row, "seq"),
  lane: numberOf(row, "lane"),
  failures: Math.max(0, numberOf(row, "retry_count")),
  deaths: Number(bigOrNull(row, "deaths") ?? 0),
});

const seqOf = (row: MysqlRow): bigint => bigOf(row, "seq");
const ascending = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0);
const bySeq = (a: Found, b: Found): number => ascending(a.seq, b.seq);
