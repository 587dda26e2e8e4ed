import { bytes } from "./bytes.ts";
import { conservation } from "./conservation.ts";
import { fewDuplicates } from "./duplicates.ts";
import { oneEffect } from "./effects.ts";
import { factsOf } from "./facts.ts";
import { fencing } from "./fencing.ts";
import type { Entry } from "./history.ts";
import { isolation, type TimeBounds } from "./isolation.ts";
import { noLoss } from "./loss.ts";
import { order } from "./order.ts";
import { noPhantom } from "./phantom.ts";
import type { Reads } from "./reads.ts";
import { resources } from "./resources.ts";
import { noSecrets } from "./secrets.ts";
import { nothingStuck } from "./stuck.ts";
import type { Verdict } from "./verdict.ts";

export interface Judgement {
  /** True when every invariant holds. An unknown verdict is as bad as a broken one. */
  readonly held: boolean;
  readonly verdicts: readonly Verdict[];
}

/** Judges every promise by the run's history and by what was read after it, in time linear in their length. */
export function check(history: readonly Entry[], reads: Reads, bounds: TimeBounds): Judgement {
  const facts = factsOf(history, reads);
  const verdicts = [
    noLoss(facts, bounds),
    noPhantom(facts),
    order(facts),
    oneEffect(facts),
    fewDuplicates(facts, bounds),
    nothingStuck(facts),
    isolation(facts, bounds),
    fencing(facts),
    bytes(facts),
    conservation(facts),
    resources(facts),
    noSecrets(facts),
  ];
  return { held: verdicts.every(({ verdict }) => verdict === "holds"), verdicts };
}

/** The part of the history that is about these events, for the example. */
export function storyOf(history: readonly Entry[], ids: readonly string[]): readonly Entry[] {
  const wanted = new Set(ids);
  return history.filter((entry) => idsOf(entry).some((id) => wanted.has(id)));
}

function idsOf(entry: Entry): readonly string[] {
  switch (entry.op) {
    case "add":
      return (entry.events ?? []).map(({ id }) => id);
    case "claim":
      return entry.claims.map(({ id }) => id);
    case "publish":
      return entry.events.map(({ id }) => id);
    case "settle":
      return entry.outcomes.map(({ id }) => id);
    case "deliver":
    case "effect":
    case "ack":
      return [entry.id];
    case "operate":
      return entry.ids;
    case "lease":
    case "fault":
      return [];
  }
}
