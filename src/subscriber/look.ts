import type { ConsumerTopic } from "../contracts/consumers.ts";
import type { DeadLetters } from "../contracts/dead-letters.ts";
import type { Source } from "../contracts/source.ts";
import type { Clock } from "../core/clock.ts";
import { asError, WaybillError } from "../core/errors.ts";
import { never, withDeadline } from "../core/time.ts";
import type { SubscriberTroubles } from "./trouble.ts";

interface Look {
  readonly consumer: string;
  readonly topics: readonly string[];
  readonly source: Source;
  /** Null where the inbox keeps all letters. */
  readonly letters: DeadLetters | null;
  readonly clock: Clock;
}

const lookMs = 10_000;

/** What the broker says about each topic. A metrics scrape waits for this, so it has a deadline and never hangs. */
export function lookAt({ consumer, topics, source, letters, clock }: Look): Promise<readonly ConsumerTopic[]> {
  const late = (): never => {
    throw new WaybillError("DESTINATION_UNAVAILABLE", `${source.name} has not told in ${lookMs} ms how far ${consumer} is behind`);
  };
  const look = async (signal: AbortSignal): Promise<readonly ConsumerTopic[]> => {
    await source.connect(signal);
    return Promise.all(
      topics.map(async (topic) => ({
        topic,
        lag: (await source.lag?.(topic, signal, consumer)) ?? null,
        deadTopic: letters?.probe === undefined ? null : { error: await letters.probe(topic, consumer, signal).then(() => null, whyOf) },
      })),
    );
  };
  return withDeadline(clock, lookMs, never, look, late);
}

const whyOf = (error: unknown): string => asError(error).message;

/** Without probes, a missing dead-letter topic would go unnoticed until the first letter, whose aggregate would wait for the topic. */
const probeMs = 60_000;

/** Probes the place of letters until it takes them, and reports each time that it does not. */
export async function probeLetters(of: Look & { readonly troubles: SubscriberTroubles }, ended: AbortSignal): Promise<void> {
  const { consumer, source, letters, clock, troubles } = of;
  if (letters?.probe === undefined) return;
  let left = [...of.topics];
  while (left.length > 0 && !ended.aborted) {
    // While the broker is unreachable, the receiving side reports that.
    const isThere = await source.connect(ended).then(
      () => true,
      () => false,
    );
    for (const topic of isThere ? left : []) {
      try {
        await withDeadline(clock, lookMs, ended, (signal) => letters.probe!(topic, consumer, signal));
        left = left.filter((other) => other !== topic);
        troubles.over("park", topic);
      } catch (error) {
        if (!ended.aborted) troubles.met("park", error, topic);
      }
    }
    if (left.length > 0) await clock.sleep(probeMs, ended);
  }
}
