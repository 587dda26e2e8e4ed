import type { Delivery, Source, Subscription } from "../../contracts/source.ts";
import { createAckLedger } from "../../core/ack-ledger.ts";
import type { Clock } from "../../core/clock.ts";
import { fromAttributes } from "../../core/cloudevents.ts";
import { WaybillError } from "../../core/errors.ts";
import { whole } from "../../core/options.ts";
import { createRoom } from "../../core/room.ts";
import { follow, type Follower } from "../../core/signal.ts";
import { createWake } from "../../core/wake.ts";
import { advance, readAfter, start, type Log } from "./log.ts";

export interface SourceOptions {
  readonly log: Log;
  readonly clock: Clock;
  readonly closing: AbortSignal;
}

// Every message and every ack is a hint; this is only for the one that was given while nobody waited.
const idleMs = 1_000;

export function createSource(options: SourceOptions): Pick<Source, "receive"> {
  return {
    receive(subscription, signal) {
      const { consumer, topics, prefetch, waiting = 0 } = subscription;
      if (typeof consumer !== "string" || consumer === "") {
        throw new WaybillError("INVALID_OPTION", `consumer must be a name, not ${JSON.stringify(consumer)}`);
      }
      if (topics.length === 0) throw new WaybillError("INVALID_OPTION", `consumer ${consumer} needs at least one topic`);
      whole("prefetch", prefetch);
      whole("waiting", waiting, 0);
      return {
        [Symbol.asyncIterator]() {
          const ending = follow(signal, options.closing);
          const deliveries = iterate(subscription, ending, options);
          return {
            next: () => deliveries.next(),
            return() {
              ending.abort();
              ending.release(); // a generator that has not begun does not
              return deliveries.return(undefined);
            },
          };
        },
      };
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
      const taken = room.take();
      yield {
        topic,
        envelope: fromAttributes(message.attributes, message.headers, message.data.slice())!,
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
