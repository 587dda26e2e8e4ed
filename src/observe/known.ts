import type { ConsumerState } from "../contracts/consumers.ts";
import type { Source } from "../contracts/source.ts";
import { systemClock } from "../core/clock.ts";
import { asError, WaybillError } from "../core/errors.ts";
import { never, withDeadline } from "../core/time.ts";

/** Names of topics, by the name of a consumer. */
export type ConsumerTopics = Readonly<Record<string, readonly string[]>>;

/** A consumer that an inbox or a configuration knows, whether or not a process of it runs, on one of its topics. */
export interface KnownConsumer {
  readonly consumer: string;
  readonly topic: string;
  /** Whether a subscriber process runs, and when one was seen last. Null where the inbox does not know. */
  readonly running: boolean | null;
  readonly seenAt: Date | null;
  /** Messages that it is not done with. Null where it has no place in the topic, or the broker cannot tell or was not asked. */
  readonly messages: number | null;
  /** Why the broker did not tell. */
  readonly error: string | null;
}

/** Those that the inbox knows, with those that were named besides. */
export function knownConsumers(inbox: readonly ConsumerState[], named: ConsumerTopics): readonly KnownConsumer[] {
  const found = inbox.flatMap(({ consumer, reads }) =>
    reads.map(({ topic, running, seenAt }) => ({ consumer, topic, running, seenAt, messages: null, error: null })),
  );
  const isFound = (consumer: string, topic: string): boolean => found.some((of) => of.consumer === consumer && of.topic === topic);
  const more = Object.entries(named).flatMap(([consumer, topics]) =>
    topics.flatMap((topic) =>
      isFound(consumer, topic) ? [] : [{ consumer, topic, running: null, seenAt: null, messages: null, error: null }],
    ),
  );
  return [...found, ...more];
}

const askMs = 10_000;

/** Asks the broker how far each is behind. It only reads, never rejects, and has a deadline. */
export async function withLags(
  known: readonly KnownConsumer[],
  broker: Pick<Source, "connect" | "lag" | "name">,
): Promise<readonly KnownConsumer[]> {
  if (known.length === 0) return known;
  const late = (): never => {
    throw new WaybillError("DESTINATION_UNAVAILABLE", `${broker.name} has not told in ${askMs} ms how far its consumers are behind`);
  };
  const ask = async (signal: AbortSignal): Promise<readonly KnownConsumer[]> => {
    await broker.connect(signal);
    return Promise.all(
      known.map((each) =>
        (async () => broker.lag?.(each.topic, signal, each.consumer))().then(
          (messages) => ({ ...each, messages: messages ?? null }),
          (error: unknown) => ({ ...each, error: asError(error).message }),
        ),
      ),
    );
  };
  return withDeadline(systemClock, askMs, never, ask, late).catch((error: unknown) =>
    known.map((each) => ({ ...each, error: asError(error).message })),
  );
}
