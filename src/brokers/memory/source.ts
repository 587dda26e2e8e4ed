import type { Delivery, Source, Subscription } from "../../contracts/source.ts";
import { createAckLedger } from "../kit/ack-ledger.ts";
import type { Clock } from "../../core/clock.ts";
import { fromAttributes } from "../../core/cloudevents.ts";
import { createRoom } from "../../core/room.ts";
import type { Follower } from "../../core/signal.ts";
import { createWake } from "../../core/wake.ts";
import { checkSubscription, receiving } from "../kit/receiving.ts";
import { unreadableEnvelope } from "../../core/unreadable.ts";
import { advance, readAfter, start, type Log, type Message } from "./log.ts";

export interface SourceOptions {
  readonly log: Log;
  readonly clock: Clock;
  readonly closing: AbortSignal;
}

// Every message and every ack is a hint; this is only for the one that was given while nobody waited.
const idleMs = 1_000;

export function createSource(options: SourceOptions): Required<Pick<Source, "receive" | "oldest">> {
  return {
    oldest: async (topic) => options.log.topics.get(topic)?.[0]?.storedAt ?? null,
    receive(subscription, signal) {
      checkSubscription(subscription);
      return receiving(signal, options.closing, (ending) => iterate(subscription, ending, options));
    },
  };
}

async function* iterate(
  { consumer, topics, ...bounds }: Subscription,
  { signal, release }: Follower,
  { log, clock }: SourceOptions,
): AsyncGenerator<Delivery, undefined> {
  if (signal.aborted) {
    release();
    return;
  }
  const cursors = new Map(topics.map((topic) => [topic, start(log, consumer, topic)]));
  const ledgers = new Map(topics.map((topic) => [topic, createAckLedger<number>()]));
  const wake = createWake();
  const room = createRoom(bounds);
  log.wakes.add(wake);
  try {
    while (!signal.aborted) {
      const [message] = room.left > 0 ? readAfter(log, cursors, 1) : [];
      if (message === undefined) {
        await wake.wait(clock, idleMs, signal);
        continue;
      }
      const { topic, offset } = message;
      cursors.set(topic, offset);
      const ledger = ledgers.get(topic)!;
      const ack = ledger.open(offset);
      const bytes = message.data.byteLength;
      const taken = room.take(bytes);
      yield {
        topic,
        bytes,
        ...contentOf(message),
        async ack() {
          taken.ack();
          if (ack()) advance(log, consumer, topic, ledger.settled!);
          wake.notify();
        },
        aside() {
          taken.aside();
          wake.notify();
        },
      };
    }
  } finally {
    release();
    log.wakes.delete(wake);
  }
}

function contentOf({ attributes, headers, data, offset }: Message): Pick<Delivery, "envelope" | "unreadable"> {
  const envelope = fromAttributes(attributes, headers, data.slice());
  if (envelope !== null) return { envelope };
  const why = "it is not an event: attributes are missing";
  return { envelope: unreadableEnvelope(`unreadable:${offset}`), unreadable: { why, raw: data.slice() } };
}
