import type { Source } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import { fromAttributes } from "../../core/cloudevents.ts";
import { onAbort } from "../../core/time.ts";
import { createAckLedger } from "../kit/ack-ledger.ts";
import { checkSubscription, receivingFrom, unreadable, type Content } from "../kit/receiving.ts";
import { advance, readAfter, start, undone, type Log, type Message } from "./log.ts";

interface SourceOptions {
  readonly log: Log;
  readonly clock: Clock;
  readonly closing: AbortSignal;
}

// How long the reader waits without a hint. A message is a hint, and so is an ack that makes enough room.
const waitMs = 1_000;

export function createSource({ log, clock, closing }: SourceOptions): Required<Pick<Source, "receive" | "oldest" | "lag">> {
  return {
    oldest: async (topic) => log.topics.get(topic)?.[0]?.storedAt ?? null,
    lag: async (topic, _signal, consumer) => undone(log, consumer, topic),
    receive(subscription, outer) {
      const topics = checkSubscription(subscription);
      const { consumer } = subscription;
      return receivingFrom(subscription, outer, {
        ...{ clock, closing, waitMs },
        open(signal, wake) {
          const cursors = new Map(topics.map((topic) => [topic, start(log, consumer, topic)]));
          const ledgers = new Map(topics.map((topic) => [topic, createAckLedger<number>()]));
          log.wakes.add(wake);
          onAbort(signal, () => log.wakes.delete(wake));
          return {
            next(room) {
              const [message] = room.left > 0 ? readAfter(log, cursors, 1) : [];
              if (message === undefined) return null;
              const { topic, offset } = message;
              cursors.set(topic, offset);
              const ledger = ledgers.get(topic)!;
              const acknowledge = ledger.open(offset);
              const ack = (): void => {
                if (acknowledge()) advance(log, consumer, topic, ledger.settled!);
              };
              return [{ topic, bytes: message.data.byteLength, ...contentOf(message), ack }];
            },
          };
        },
      });
    },
  };
}

function contentOf({ attributes, headers, data, offset }: Message): Content {
  const envelope = fromAttributes(attributes, headers, data.slice());
  return envelope === null ? unreadable(offset, "it is not an event: attributes are missing", data.slice()) : { envelope };
}
