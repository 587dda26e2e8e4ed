import type { Facts } from "./facts.ts";
import type { Bounds } from "./isolation.ts";
import type { Trouble } from "./troubles.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/**
 * D: copies - 1 <= faults x window, in all; no event has more copies than there were faults that can copy; and each copy
 * has a fault that came between a publish and its settle. None without a fault.
 */
export function fewDuplicates({ history, reads, events, troubles }: Facts, { recoveryMs }: Bounds): Verdict {
  if (reads.broker === null) return unknown("few duplicates", "the broker could not be read");
  const copying = troubles.filter(({ copies }) => copies !== 0);
  const untold = copying.find(({ copies }) => copies === null);
  if (untold !== undefined)
    return unknown("few duplicates", `nobody knows how many copies the fault ${untold.fault} of ${untold.target} may cause`);
  const allowed = copying.reduce((sum, { copies }) => sum + copies!, 0);
  const { broken, pardon, verdict } = trial("few duplicates");
  const copies = new Map<string, number>();
  for (const { topic, id } of reads.broker) copies.set(`${topic} ${id}`, (copies.get(`${topic} ${id}`) ?? 0) + 1);
  const doubled = new Map([...copies].flatMap(([place, count]) => (count > 1 ? [[place.slice(place.lastIndexOf(" ") + 1), count]] : [])));
  const sent = sendsOf(history, doubled);
  let total = 0;
  for (const [id, count] of doubled) {
    total += count - 1;
    const { aggregate, n } = events.get(id) ?? { aggregate: id, n: 0 };
    if (count - 1 > copying.length) broken(n, `${aggregate} #${n} has ${count} copies, and ${copying.length} faults can copy`, [id]);
    else if (!isExplained(sent.get(id) ?? [], count, copying, recoveryMs))
      broken(n, `${aggregate} #${n} has ${count} copies, and was settled before anything broke`, [id]);
    else for (let i = 1; i < count; i++) pardon("explained-copy");
  }
  if (total > allowed)
    broken(Infinity, `there are ${total} copies too many, and the faults explain ${allowed}`, [...doubled.keys()].slice(0, 5));
  return verdict();
}

/** A publish, from when it began until it is known to be settled. */
interface Send {
  readonly process: string;
  readonly from: number;
  until: number;
}

function sendsOf(history: Facts["history"], wanted: ReadonlyMap<string, number>): ReadonlyMap<string, readonly Send[]> {
  const sends = new Map<string, Send[]>([...wanted.keys()].map((id) => [id, []]));
  for (const entry of history) {
    if (entry.op === "publish" && entry.phase === "invoked") {
      for (const { id } of entry.events) sends.get(id)?.push({ process: entry.process, from: entry.at, until: Infinity });
    } else if (entry.op === "publish" && entry.phase === "failed") {
      // It was refused, and is no copy.
      for (const { id } of entry.events) {
        const of = sends.get(id);
        const last = of?.findLastIndex(({ process }) => process === entry.process) ?? -1;
        if (last >= 0) of!.splice(last, 1);
      }
    } else if (entry.op === "settle" && entry.phase === "ok") {
      for (const { id, as } of entry.outcomes) {
        const send = sends.get(id)?.findLast(({ process }) => process === entry.process);
        if (as === "published" && send !== undefined) send.until = Math.min(send.until, entry.at);
      }
    }
  }
  return sends;
}

/** For each copy, something was broken between a publish and its settle; a fail-over takes back what was settled before. */
function isExplained(sends: readonly Send[], count: number, copying: readonly Trouble[], recoveryMs: number): boolean {
  const broke = (from: number, until: number): boolean => copying.some((fault) => fault.from <= until && fault.until + recoveryMs >= from);
  const forgot = (from: number, until: number): boolean =>
    copying.some((fault) => fault.fault === "failover" && fault.from <= until && fault.until >= from);
  // More copies than publishes are the broker's, or the adapter's.
  if (sends.length < count) return broke(sends[0]?.from ?? -Infinity, sends.at(-1)?.until ?? Infinity);
  const explained = sends.slice(1).filter(({ from: again }, i) => {
    const { from, until } = sends[i]!;
    return broke(from, Math.min(until, again)) || forgot(from, again);
  });
  // One that nobody answered may never have come there.
  return explained.length >= count - 1;
}
