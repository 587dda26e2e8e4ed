import type { Facts } from "./facts.ts";
import type { Written } from "./history.ts";
import type { Legal } from "./legal.ts";
import { trial, unknown, type Trial, type Verdict } from "./verdict.ts";

type Place = Pick<Written, "id" | "n">;

/** O: of one aggregate on one topic, first copies in the broker and first effects at a consumer ascend. */
export function order(facts: Facts): Verdict {
  const { broker, effects } = facts.reads;
  if (broker === null || effects === null) return unknown("order", "the broker or the effects could not be read");
  const found = trial("order");
  const unmarked = (facts.reads.letters ?? []).filter(({ marked }) => marked !== true);
  const parked = new Set(unmarked.map(({ consumer, id }) => `${consumer} ${id}`));
  ascending(facts, found, broker, ({ topic, aggregate }) => `${aggregate} on ${topic}`);
  const whyLate = ({ consumer, id }: { readonly consumer: string; readonly id: string }): Legal | null => {
    const key = `${consumer} ${id}`;
    return facts.redriven.has(key) ? "parked-then-redriven" : parked.has(key) ? "parked-then-copied" : null;
  };
  ascending(facts, found, effects, ({ consumer, topic, aggregate }) => `${aggregate} of ${topic} at ${consumer}`, whyLate);
  return found.verdict();
}

/** The distance between two events that changed places is the size of the example. */
function ascending<Seen extends Place>(
  facts: Facts,
  found: Trial,
  seen: readonly Seen[],
  lineOf: (seen: Seen) => string,
  whyLate: (seen: Seen) => Legal | null = () => null,
): void {
  const last = new Map<string, Place>();
  const first = new Set<string>();
  for (const each of seen) {
    const line = lineOf(each);
    const { id, n } = each;
    if (first.has(`${line} ${id}`)) continue;
    first.add(`${line} ${id}`);
    const event = facts.events.get(id);
    if (event?.fate === "forgotten") continue;
    const before = last.get(line);
    const delayed = event?.delayed === true;
    if (before === undefined || before.n < n) {
      // Earlier events may come after a delayed one, but must still be in order among themselves.
      if (!delayed) last.set(line, { id, n });
      continue;
    }
    const why = delayed ? "joins-late" : facts.skipped.has(id) ? "skipped-then-redriven" : whyLate(each);
    if (why !== null) found.pardon(why);
    else found.broken(before.n - n, `${line}: #${n} came after #${before.n}`, [before.id, id]);
  }
}
