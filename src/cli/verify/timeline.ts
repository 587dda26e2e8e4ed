import type { Entry } from "../../proof/judge/history.ts";

/** What happened when, in seconds from the beginning. */
export interface Timeline {
  readonly seconds: number;
  readonly faults: readonly { readonly from: number; readonly until: number; readonly fault: string; readonly target: string }[];
  /** Of each second: committed events, events stored by the broker, effects. */
  readonly throughput: Readonly<Record<"added" | "published" | "applied", readonly number[]>>;
}

export function timelineOf(history: readonly Entry[]): Timeline {
  const from = history[0]?.at ?? 0;
  const seconds = Math.ceil(((history.at(-1)?.at ?? from) - from) / 1_000);
  const none = (): number[] => Array.from({ length: seconds + 1 }, () => 0);
  const throughput = { added: none(), published: none(), applied: none() };
  const sizes = new Map<string, number>();
  const faults: { from: number; until: number; fault: string; target: string }[] = [];
  for (const entry of history) {
    const at = (entry.at - from) / 1_000;
    const second = Math.floor(at);
    if (entry.op === "add" && entry.phase === "invoked")
      sizes.set(entry.tx, (entry.events ?? []).filter(({ undone }) => undone !== true).length);
    else if (entry.op === "add" && entry.phase === "ok") throughput.added[second]! += sizes.get(entry.tx) ?? 0;
    else if (entry.op === "publish" && entry.phase === "ok") throughput.published[second]! += entry.events.length;
    else if (entry.op === "effect" && entry.phase === "ok") throughput.applied[second]! += 1;
    else if (entry.op === "fault" && entry.fault !== "heal") {
      const { fault, target } = entry;
      if (entry.phase === "invoked") faults.push({ from: at, until: at, fault, target });
      const open = faults.findLast((each) => each.fault === fault && each.target === target);
      if (open !== undefined) open.until = at;
    }
  }
  return { seconds, faults, throughput };
}
