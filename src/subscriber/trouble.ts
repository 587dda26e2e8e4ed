import { asError } from "../core/errors.ts";
import type { Observe, SubscriberStep } from "../core/path-events.ts";
import { reasonOf } from "./reason.ts";

/** Reports what a subscriber could not do, of which topic and which event. */
export type SubscriberTrouble = (step: SubscriberStep, error: unknown, topic?: string | null, id?: string | null) => void;

export function troubleOf(observe: Observe, consumer: string): SubscriberTrouble {
  return (step, error, topic = null, id = null) =>
    observe({ type: "subscriber.trouble", consumer, step, topic, id, error: reasonOf(asError(error)) });
}
