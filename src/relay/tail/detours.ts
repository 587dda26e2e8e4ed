import type { AggregateName } from "../../contracts/log-tailer.ts";
import type { Detoured } from "../../contracts/tail-ledger.ts";
import { aggregateKey, type Envelope } from "../../core/event.ts";

interface Detour {
  readonly aggregate: AggregateName;
  /** The log shows a transaction before its rows can be seen. */
  xid: string | null;
  /** Its events that the relay has not handed over yet. */
  readonly entering: Set<bigint>;
  /** Those that a claim under way may have missed. */
  entered: { readonly seq: bigint; readonly at: number }[];
  /** Changes with whatever may have brought an event into the table. */
  turn: number;
}

/**
 * The aggregates that have events in the table. Their events from the log go into the table too, and come back by polling, so that they keep
 * their order. An aggregate leaves when the table has none of its events left, and the relay none that is on its way there.
 */
export interface Detours {
  readonly size: number;
  has(key: string): boolean;
  /** Whether an earlier event of its aggregate is on its way into the table, or was so since that moment. */
  isBehind(event: Envelope, since: number): boolean;
  /** With the transaction of the log that added an event of the table's to it. */
  add(aggregate: AggregateName, xid?: string): void;
  /** It is on its way into the table. */
  enters(event: Envelope): void;
  /** It is there, at this moment. A claim that began before `since` is not under way. */
  entered(event: Envelope, at: number, since: number): void;
  /** Those that may have left the table, a part of them at a time. */
  candidates(): Candidates;
}

interface Candidates {
  readonly aggregates: readonly Detoured[];
  /** Takes those out of which the table has nothing left, unless something has happened to them since. */
  over(aggregates: readonly AggregateName[]): void;
}

const atOnce = 1_000;

export function createDetours(): Detours {
  const known = new Map<string, Detour>();
  const of = (aggregate: AggregateName): Detour => {
    const key = aggregateKey(aggregate);
    let detour = known.get(key);
    if (detour === undefined)
      known.set(key, (detour = { aggregate: nameOf(aggregate), xid: null, entering: new Set(), entered: [], turn: 0 }));
    detour.turn += 1;
    return detour;
  };
  return {
    get size() {
      return known.size;
    },
    has: (key) => known.has(key),
    isBehind(event, since) {
      const detour = known.get(aggregateKey(event));
      for (const seq of detour?.entering ?? []) if (seq < event.seq) return true;
      return detour?.entered.some(({ seq, at }) => seq < event.seq && at >= since) ?? false;
    },
    add(aggregate, xid) {
      const detour = of(aggregate);
      detour.xid = xid ?? detour.xid;
    },
    enters: (event) => void of(event).entering.add(event.seq),
    entered(event, at, since) {
      const detour = of(event);
      detour.entering.delete(event.seq);
      detour.entered = [...detour.entered.filter((each) => each.at >= since), { seq: event.seq, at }];
    },
    candidates() {
      const first: [string, Detour][] = [];
      for (const entry of known) if (first.push(entry) === atOnce) break;
      for (const [key, detour] of first) {
        // To the end of the line: the next call looks at others.
        known.delete(key);
        known.set(key, detour);
      }
      const asked = new Map(first.filter(([, { entering }]) => entering.size === 0).map(([key, { turn }]) => [key, turn]));
      const aggregates = first.filter(([key]) => asked.has(key)).map(([, { aggregate, xid }]) => ({ ...aggregate, xid }));
      return {
        aggregates,
        over(gone) {
          for (const key of gone.map(aggregateKey)) {
            const detour = known.get(key);
            if (detour?.entering.size === 0 && detour.turn === asked.get(key)) known.delete(key);
          }
        },
      };
    },
  };
}

/** Without the rest of an envelope, which would stay in memory. */
const nameOf = ({ aggregateType, aggregateId }: AggregateName): AggregateName => ({ aggregateType, aggregateId });
