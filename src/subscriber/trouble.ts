import type { Clock } from "../core/clock.ts";
import { asError } from "../core/errors.ts";
import type { Observe, SubscriberStep } from "../core/path-events.ts";
import { lineOf } from "../core/reason.ts";

/** Reports what a subscriber could not do, for which topic and event, and reports once when it works again. */
export interface SubscriberTroubles {
  met(step: SubscriberStep, error: unknown, topic?: string | null, id?: string | null): void;
  /** The step has worked for this topic, after it failed or for the first time. */
  over(step: SubscriberStep, topic?: string | null): void;
  /** A step that has neither failed nor ended. No recovery is reported for it later. */
  overdue(step: SubscriberStep, error: unknown, topic: string, id: string): void;
}

export function createTroubles(observe: Observe, consumer: string, clock: Clock): SubscriberTroubles {
  const since = new Map<string, number>();
  const report = (step: SubscriberStep, error: unknown, topic: string | null, id: string | null): void =>
    observe({ type: "subscriber.trouble", consumer, step, topic, id, error: lineOf(asError(error)) });
  const keyOf = (step: SubscriberStep, topic: string | null): string => `${step} ${topic ?? ""}`;
  return {
    met(step, error, topic = null, id = null) {
      const key = keyOf(step, topic);
      if (!since.has(key)) since.set(key, clock.monotonic());
      report(step, error, topic, id);
    },
    over(step, topic = null) {
      if (since.size === 0) return; // called for every delivery
      // A failure from before the topic was known is over when the first topic works.
      const keys = [keyOf(step, topic), keyOf(step, null)].filter((key) => since.has(key));
      if (keys.length === 0) return;
      const from = Math.min(...keys.map((key) => since.get(key)!));
      for (const key of keys) since.delete(key);
      observe({ type: "subscriber.recovered", consumer, step, topic, ms: clock.monotonic() - from });
    },
    overdue: report,
  };
}
