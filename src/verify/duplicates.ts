import type { Facts } from "./facts.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/** D: copies - 1 <= faults x window, in all; no event has more copies than there were faults that can copy; none without a fault. */
export function fewDuplicates({ history, reads, events }: Facts): Verdict {
  if (reads.broker === null) return unknown("few duplicates", "the broker could not be read");
  let allowed = 0;
  let faults = 0;
  for (const entry of history) {
    if (entry.op !== "fault" || entry.phase !== "invoked" || entry.copies === 0) continue;
    if (entry.copies === null)
      return unknown("few duplicates", `nobody knows how many copies the fault ${entry.fault} of ${entry.target} may cause`);
    allowed += entry.copies;
    faults++;
  }
  const { broken, pardon, verdict } = trial("few duplicates");
  const copies = new Map<string, number>();
  for (const { topic, id } of reads.broker) copies.set(`${topic} ${id}`, (copies.get(`${topic} ${id}`) ?? 0) + 1);
  let total = 0;
  const doubled: string[] = [];
  for (const [place, count] of copies) {
    if (count === 1) continue;
    total += count - 1;
    const id = place.slice(place.lastIndexOf(" ") + 1);
    doubled.push(id);
    const { aggregate, n } = events.get(id) ?? { aggregate: id, n: 0 };
    if (count - 1 > faults) broken(n, `${aggregate} #${n} has ${count} copies, and ${faults} faults can copy`, [id]);
    else for (let i = 1; i < count; i++) pardon("explained-copy");
  }
  if (total > allowed) broken(Infinity, `there are ${total} copies too many, and the faults explain ${allowed}`, doubled.slice(0, 5));
  return verdict();
}
