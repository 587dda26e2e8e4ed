import { count, redactText } from "../../core/text.ts";
import { storyOf } from "../../proof/judge/check.ts";
import { legal } from "../../proof/judge/legal.ts";
import type { Invariant, Verdict } from "../../proof/judge/verdict.ts";
import { filesUntold } from "../../proof/crew/measure.ts";
import type { RunResult } from "../../proof/run/run.ts";
import { timelineOf, type Timeline } from "./timeline.ts";

/** The report of a run. It contains no secret of a URL and no event's content. */
export interface RunReport {
  readonly run: string;
  /** The same seed starts the same workload and faults. Timing on the machine still differs. */
  readonly seed: number;
  readonly minutes: number;
  readonly store: string;
  readonly broker: string;
  readonly startedAt: string;
  readonly held: boolean;
  readonly verdicts: readonly ToldVerdict[];
  readonly counts: RunResult["counts"];
  readonly faults: Readonly<Record<string, number>>;
  /** How the run was made, and what it could not do. */
  readonly notes: readonly string[];
  readonly timeline: Timeline;
  /** What is left of the run. Null for nothing. */
  readonly left: Left | null;
}

export interface Left {
  /** The name of all that the run has in the store and in the broker. */
  readonly run: string;
  /** True when it was left on purpose. */
  readonly kept: boolean;
  /** The folder of the histories. */
  readonly histories: string | null;
  /** What could not be removed, and why. */
  readonly notRemoved: readonly string[];
}

export interface ToldVerdict {
  readonly invariant: Invariant;
  readonly promise: string;
  readonly verdict: Verdict["verdict"];
  readonly why: string;
  /** For a broken promise: the history of its events. */
  readonly story: readonly unknown[];
}

const promises: Readonly<Record<Invariant, string>> = {
  "no loss": "every event of a committed transaction reaches the broker and has its effect, or stays visible",
  "no phantom": "no event of a rolled-back transaction is ever published",
  order: "an aggregate's events come in the order of its commits",
  "one effect": "an event has one effect at each consumer",
  "few duplicates": "copies − 1 ≤ faults × window, and none without a fault",
  "nothing stuck": "when all is whole again, nothing waits that nothing holds",
  isolation: "what is broken harms its own aggregate or topic only",
  fencing: "nobody settles or publishes under a lease that is over",
  bytes: "the bytes that went in come out",
  conservation: "status counts what SQL counts, and no unpublished row is gone",
  resources: "memory and open files stay bounded, and no process dies by itself",
  "no secrets": "no secret is in a log or a message",
};

function told(verdict: Verdict, history: RunResult["history"]): ToldVerdict {
  const { invariant } = verdict;
  const common = { invariant, promise: promises[invariant], verdict: verdict.verdict };
  switch (verdict.verdict) {
    case "holds": {
      const pardons = [...verdict.pardons].map(([why, times]) => `${times} × ${legal[why]}`);
      return { ...common, why: pardons.join("; "), story: [] };
    }
    case "broken":
      return {
        ...common,
        why: `${count(verdict.times, "time")}; ${verdict.example.text}`,
        story: storyOf(history, verdict.example.ids).slice(0, 60),
      };
    case "unknown":
      return { ...common, why: verdict.reason, story: [] };
  }
}

export type About = Omit<RunReport, "held" | "verdicts" | "counts" | "faults" | "timeline">;

export function reportOf(result: RunResult, about: About): RunReport {
  const timeline = timelineOf(result.history);
  const faults: Record<string, number> = {};
  for (const { fault, target } of timeline.faults) {
    const name = `${fault} of ${target.replace(/-\d+$/, "")}`;
    faults[name] = (faults[name] ?? 0) + 1;
  }
  const verdicts = result.judgement.verdicts.map((verdict) => told(verdict, result.history));
  return { ...about, held: result.judgement.held, verdicts, counts: result.counts, faults, timeline };
}

/** What a run could not do, and what went wrong in it. */
export function notesOf({ measured, unread, deaths }: RunResult): readonly string[] {
  return [
    ...(measured ? [] : [filesUntold]),
    ...unread.map(redactText),
    ...deaths.map(({ worker, words }) => `${worker} died by itself: ${redactText(words)}`),
  ];
}

export function leftWords({ run, kept, histories, notRemoved }: Left): readonly string[] {
  return [
    ...(kept ? [`left as they are: ${run} in the store and in the broker`] : []),
    ...notRemoved.map((why) => `${run} could not be removed: ${why}`),
    ...(histories === null ? [] : [`the histories are in ${histories}`]),
  ];
}
