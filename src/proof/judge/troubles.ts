import type { Act, Entry, Scope, Written } from "./history.ts";

/** A fault, from when to when. */
export interface Trouble extends Omit<Extract<Act, { op: "fault" }>, "op"> {
  readonly from: number;
  /** Infinity while it goes on. */
  until: number;
}

export function harms(scope: Scope, { topic, aggregate }: Written): boolean {
  if (scope === "all") return true;
  return "topics" in scope ? scope.topics.includes(topic) : scope.aggregates.includes(aggregate);
}

/** A fault goes on until its end is told; one that is over at once tells both. */
export function troublesOf(history: readonly Entry[]): readonly Trouble[] {
  /** Two of one name may go on at a time: whichever ends, the time until the last end is covered. */
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

/** Something was broken that was this event's own, or its aggregate's or topic's: it may be given up for it. */
export const isToBlame = ({ target, scope }: Trouble, event: Written): boolean =>
  target === event.id || (scope !== "all" && harms(scope, event));
