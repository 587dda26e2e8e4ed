import type { Facts } from "./facts.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/** E: a consumer's effect in its own database happens once per event, however often it was delivered. A letter goes away with its effect. */
export function oneEffect({ reads, redriven }: Facts): Verdict {
  if (reads.effects === null) return unknown("one effect", "the effects could not be read");
  const { broken, verdict } = trial("one effect");
  const times = new Map<string, { consumer: string; id: string; text: string; count: number }>();
  for (const { consumer, id, aggregate, n } of reads.effects) {
    const known = times.get(`${consumer} ${id}`);
    if (known === undefined) times.set(`${consumer} ${id}`, { consumer, id, text: `${aggregate} #${n}`, count: 1 });
    else known.count++;
  }
  for (const { consumer, id, text, count } of times.values())
    if (count > 1) broken(count, `${text} had ${count} effects at ${consumer}`, [id]);
  for (const { consumer, id, marked } of reads.letters ?? [])
    if (marked === true && redriven.has(`${consumer} ${id}`))
      broken(1, `event ${id} was applied from its letter at ${consumer}, and the letter is still there`, [id]);
  return verdict();
}
