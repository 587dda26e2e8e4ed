import type { Act, Entry, Scope, Written } from "./history.ts";

/** A fault with its beginning and its end. */
export interface Trouble extends Omit<Extract<Act, { op: "fault" }>, "op"> {
  readonly from: number;
  /** Infinity while it goes on. */
  until: number;
}

export function harms(scope: Scope, { topic, aggregate }: Written): boolean {
  if (scope === "all") return true;
  return "topics" in scope ? scope.topics.includes(topic) : scope.aggregates.includes(aggregate);
}

/** A fault lasts until its end is recorded. An instant fault records both. */
export function troublesOf(history: readonly Entry[]): readonly Trouble[] {
  /** Two faults with one name may overlap. Whichever ends first, the time until the last end is covered. */
  const open = new Map<string, Trouble[]>();
  const troubles: Trouble[] = [];
  for (const entry of history) {
    if (entry.op !== "fault") continue;
    const { fault, target, scope, copies } = entry;
    const name = `${fault} ${target}`;
    if (fault === "heal") for (const trouble of troubles) trouble.until = Math.min(trouble.until, entry.at);
    else if (entry.phase === "invoked") {
      const trouble: Trouble = { fault, target, scope, copies, from: entry.at, until: Infinity };
      troubles.push(trouble);
      open.set(name, [...(open.get(name) ?? []), trouble]);
    } else {
      const trouble = open.get(name)?.shift();
      if (trouble !== undefined) trouble.until = Math.min(trouble.until, entry.at);
    }
  }
  return troubles;
}

/** The fault concerns this event, its aggregate or its topic, so giving the event up is justified. */
export const isToBlame = ({ target, scope }: Trouble, event: Written): boolean =>
  target === event.id || (scope !== "all" && harms(scope, event));
