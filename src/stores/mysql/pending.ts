import { rowsPerStep } from "../kit/claim.ts";
import type { MysqlRow, Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { bigOf, numberOf } from "./rows.ts";
import { list } from "./values.ts";

/** Lanes whose floors lie so close together are scanned together, from the lowest floor. */
const together = 20_000n;
/** An index entry costs next to nothing, and the more are seen the fairer the lanes can be served. */
const leastRead = 1_000;

interface Group {
  readonly lanes: readonly number[];
  readonly floor: bigint;
}

/**
 * The index of ready rows is ordered by `seq` and not by lane. Dead entries, which InnoDB cannot clean up while a transaction holds an old
 * snapshot, then lie below the floors. In an index by lane, one lane's last entry would be followed by all dead entries of the next, and
 * InnoDB would walk over them before it sees that the lane is at its end.
 */
export function groupsOf(lanes: readonly number[], floorOf: (lane: number) => bigint): readonly Group[] {
  const groups: { lanes: number[]; floor: bigint }[] = [];
  for (const [lane, floor] of lanes.map((each) => [each, floorOf(each)] as const).sort(([, a], [, b]) => (a < b ? -1 : a > b ? 1 : 0))) {
    const group = groups.at(-1);
    if (group !== undefined && floor - group.floor <= together) group.lanes.push(lane);
    else groups.push({ lanes: [lane], floor });
  }
  return groups;
}

export interface Pending {
  /** The next ones, the first of each lane before the second of any. */
  pick(count: number): Promise<readonly bigint[]>;
  /** Whether rows are left that were seen and not picked, or that may not have been seen yet. */
  more(): boolean;
  /**
   * Rows up to this number that no look before has shown, and delayed rows that have become available and precede a picked row. It comes
   * last: rows that are picked afterwards are not checked again. Null when more rows have become available than one claim makes ready: all
   * of those go first.
   */
  missed(last: bigint, precedes: (row: MysqlRow) => boolean): Promise<readonly bigint[] | null>;
  /** Each lane's lowest number, or how far the scan got without finding one. Null where the lane has none. */
  lowest(): ReadonlyMap<number, bigint | null>;
}

interface Source {
  readonly run: Run;
  readonly names: Names;
  readonly groups: readonly Group[];
  /** SQL that leaves out what must not be claimed, about the outbox named `o`. */
  readonly which: string;
  /** In which order lanes are served. */
  readonly lanes: readonly number[];
  readonly limit: number;
  /** Runs the look for lanes without a row so far, or leaves it out: their rows may be far behind the other lanes'. */
  probe(look: () => Promise<void>): Promise<void>;
}

interface Part extends Group {
  /** How far it has been read. */
  after: bigint;
  full: boolean;
}

export function createPending({ run, names: n, groups, which, lanes, limit, probe }: Source): Pending {
  const size = Math.max(leastRead, 2 * limit);
  const seen = new Set<bigint>();
  const waiting = new Map<number, bigint[]>(lanes.map((lane) => [lane, []]));
  const first = new Map<number, bigint>();
  let parts: Part[] = groups.map((group) => ({ ...group, after: group.floor, full: true }));
  let probed = false;

  const numbers = (part: Group, after: bigint, end: string, more = ""): string =>
    `(SELECT o.lane, o.seq${more} FROM ${n.outbox} o FORCE INDEX (ready) WHERE o.ready = 1 AND o.seq > ${after} AND o.lane IN (${list(part.lanes)}) ${which} ${end})`;

  const read = async (some: readonly Part[]): Promise<void> => {
    if (some.length === 0) return;
    const rows = await run(some.map((part) => numbers(part, part.after, `ORDER BY o.seq LIMIT ${size}`)).join(" UNION ALL "));
    const found = rows.map((row) => ({ lane: numberOf(row, "lane"), seq: bigOf(row, "seq") })).sort((a, b) => (a.seq < b.seq ? -1 : 1));
    for (const { lane, seq } of found) {
      seen.add(seq);
      waiting.get(lane)!.push(seq);
      if (!first.has(lane)) first.set(lane, seq);
    }
    for (const part of some) {
      const own = found.filter(({ lane }) => part.lanes.includes(lane));
      part.full = own.length === size;
      part.after = own.at(-1)?.seq ?? part.after;
    }
  };

  /** Lanes without a row among those read get a scan of their own: another lane's backlog must not keep them waiting. */
  const readOthers = async (): Promise<void> => {
    const others: Part[] = [];
    parts = parts.map((part) => {
      const silent = part.full ? part.lanes.filter((lane) => !first.has(lane)) : [];
      if (silent.length === 0) return part;
      others.push({ ...part, lanes: silent });
      return { ...part, lanes: part.lanes.filter((lane) => first.has(lane)) };
    });
    parts.push(...others);
    if (others.length > 0) await probe(() => read(others));
  };

  const total = (): number => [...waiting.values()].reduce((sum, seqs) => sum + seqs.length, 0);

  return {
    async pick(count) {
      if (total() < count) await read(parts.filter(({ full }) => full));
      if (!probed) await readOthers();
      probed = true;
      const picked: bigint[] = [];
      for (let rank = 0, some = true; some && picked.length < count; rank++) {
        some = false;
        for (const seqs of waiting.values()) {
          const seq = seqs[rank];
          if (seq === undefined || picked.length === count) continue;
          picked.push(seq);
          some = true;
        }
      }
      const taken = new Set(picked);
      for (const [lane, seqs] of waiting)
        waiting.set(
          lane,
          seqs.filter((seq) => !taken.has(seq)),
        );
      return picked;
    },
    more: () => total() > 0 || parts.some(({ full }) => full),
    async missed(last, precedes) {
      const rows = await run(
        [
          ...parts.map((part) => numbers(part, part.floor, `AND o.seq <= ${last}`, ", NULL AS aggregate_type, NULL AS aggregate_id")),
          `(SELECT o.lane, o.seq, CAST(o.aggregate_type AS BINARY), CAST(o.aggregate_id AS BINARY) FROM ${n.outbox} o FORCE INDEX (due)
            WHERE o.due_at <= UTC_TIMESTAMP(6) AND o.status = 'PENDING' AND o.lane IN (${list(lanes)}) AND o.seq <= ${last} ${which} LIMIT ${rowsPerStep})`,
        ].join(" UNION ALL "),
      );
      const joining = rows.filter((row) => row["aggregate_type"] !== null);
      if (joining.length === rowsPerStep) return null;
      const ready = rows.filter((row) => row["aggregate_type"] === null);
      return [...ready, ...joining.filter(precedes)].map((row) => bigOf(row, "seq")).filter((seq) => !seen.has(seq));
    },
    lowest: () =>
      new Map(
        parts.flatMap(({ lanes: own, full, after }) => own.map((lane) => [lane, first.get(lane) ?? (full ? after + 1n : null)] as const)),
      ),
  };
}
