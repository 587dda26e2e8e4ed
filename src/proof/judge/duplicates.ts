import type { Facts } from "./facts.ts";
import type { TimeBounds } from "./isolation.ts";
import type { Trouble } from "./troubles.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/**
 * D: copies - 1 <= faults x window, in total. No event has more copies than there were faults that can copy. Each copy has a fault between
 * a publish and its settle: none without a fault. With `answerMs`, a publish that the broker left unanswered is a fault too, for its own
 * events only. A copy that a fault of the run explains counts for that fault.
 */
export function fewDuplicates({ history, reads, events, troubles }: Facts, { lingerMs, answerMs = Infinity }: TimeBounds): Verdict {
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
  const sent = sendsOf(history, doubled, answerMs);
  let total = 0;
  for (const [id, count] of doubled) {
    const sends = sent.get(id) ?? [];
    const { byFault, bySilence } = reasonsOf(sends, count, copying, lingerMs);
    const silent = Math.min(bySilence, count - 1);
    const others = count - 1 - silent;
    total += others;
    const { aggregate, n } = events.get(id) ?? { aggregate: id, n: 0 };
    if (others > copying.length) broken(n, `${aggregate} #${n} has ${count} copies, and ${copying.length} faults can copy`, [id]);
    else if (others > byFault) broken(n, `${aggregate} #${n} has ${count} copies, and was settled before anything broke`, [id]);
    else {
      for (let i = 0; i < others; i++) pardon("explained-copy");
      for (let i = 0; i < silent; i++) pardon("unanswered-publish");
    }
  }
  if (total > allowed)
    broken(Infinity, `there are ${total} copies too many, and the faults explain ${allowed}`, [...doubled.keys()].slice(0, 5));
  return verdict();
}

/** A publish, from its relay's last look at the clock before it until the settle is known. */
interface Send {
  readonly process: string;
  readonly from: number;
  until: number;
  /** The broker did not answer in time. */
  unanswered: boolean;
}

function sendsOf(history: Facts["history"], wanted: ReadonlyMap<string, number>, answerMs: number): ReadonlyMap<string, readonly Send[]> {
  const sends = new Map<string, Send[]>([...wanted.keys()].map((id) => [id, []]));
  for (const entry of history) {
    if (entry.op === "publish" && entry.phase === "invoked") {
      for (const { id } of entry.events)
        sends.get(id)?.push({ process: entry.process, from: entry.began, until: Infinity, unanswered: false });
    } else if (entry.op === "publish" && entry.phase === "unknown") {
      for (const { id } of entry.events) {
        const send = sends.get(id)?.findLast(({ process }) => process === entry.process);
        if (send !== undefined) send.unanswered = entry.at - send.from >= answerMs;
      }
    } else if (entry.op === "publish" && entry.phase === "failed") {
      // A refused publish is no copy.
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

/**
 * How many repeated sends have a reason: a fault between the previous publish and its settle, a fail-over that undid the settle, or else a
 * broker that never answered. An unanswered send may never have arrived, so there may be more reasons than copies.
 */
function reasonsOf(
  sends: readonly Send[],
  count: number,
  copying: readonly Trouble[],
  lingerMs: number,
): { readonly byFault: number; readonly bySilence: number } {
  const broke = (from: number, until: number): boolean => copying.some((fault) => fault.from <= until && fault.until + lingerMs >= from);
  const forgot = (from: number, until: number): boolean =>
    copying.some((fault) => fault.fault === "failover" && fault.from <= until && fault.until >= from);
  // If there are more copies than publishes, the broker or the adapter made them.
  if (sends.length < count)
    return { byFault: broke(sends[0]?.from ?? -Infinity, sends.at(-1)?.until ?? Infinity) ? count - 1 : 0, bySilence: 0 };
  let [byFault, bySilence] = [0, 0];
  for (const [i, { from: again }] of sends.slice(1).entries()) {
    const { from, until, unanswered } = sends[i]!;
    if (broke(from, Math.min(until, again)) || forgot(from, again)) byFault += 1;
    else if (unanswered) bySilence += 1;
  }
  return { byFault, bySilence };
}
