import type { ConsumerState } from "../contracts/consumers.ts";
import { inWords } from "../core/in-words.ts";
import { defaultDelaysMs } from "../core/retry.ts";
import { count } from "../core/text.ts";
import type { CommandBroker } from "./open.ts";

export interface Lag {
  readonly consumer: string;
  readonly topic: string;
  /** Null where the broker cannot say, or the consumer has no place in the topic yet. */
  readonly messages: number | null;
}

const lagMs = 10_000;

/** How many messages of a topic a consumer is not done with. */
export async function lagOf({ sink }: CommandBroker, consumer: string, topic: string): Promise<Lag> {
  const signal = AbortSignal.timeout(lagMs);
  await sink.connect(signal);
  return { consumer, topic, messages: (await sink.lag?.(topic, signal, consumer)) ?? null };
}

export function behind({ consumer, topic, messages }: Lag): string {
  if (messages === null) return `${consumer} has no place in ${topic} yet, or the broker cannot tell how far behind it is`;
  return `${consumer} is ${count(messages, "message")} behind on ${topic}`;
}

/** Whether this database has any trace of the consumer. */
export const isKnown = ({ reads, letters, retrying, handled }: ConsumerState): boolean =>
  reads.length > 0 || letters.length > 0 || retrying !== null || (handled ?? 0) > 0;

export const nobody = (consumer: string): string =>
  `This database has no trace of ${consumer}: is the name right, and is this the database of its inbox?`;

const attempts = defaultDelaysMs.length + 1;
const patience = inWords(defaultDelaysMs.reduce((sum, ms) => sum + ms, 0));

/** Reports events that have failed and are no letters yet. */
export function retried({ consumer, retrying }: ConsumerState, now: number): readonly string[] {
  if (retrying === null) return [];
  const { events, attempts: most, failedAt } = retrying;
  const failures = `${count(events, "event has", "events have")} failed and ${events === 1 ? "is" : "are"} tried again`;
  return [
    `${failures} by ${consumer}, after ${count(most, "failed attempt")} at most, the last ${inWords(Math.max(0, now - failedAt.getTime()))} ago.`,
    `A letter appears when the last attempt has failed: the ${ordinal(attempts)} by default, about ${patience} after the first.`,
  ];
}

const ordinal = (n: number): string => ["first", "second", "third", "fourth", "fifth", "sixth"][n - 1] ?? `${n}th`;
