import type { Delivery, Source, Subscription } from "../../contracts/source.ts";
import { createAckLedger } from "../../core/ack-ledger.ts";
import type { Clock } from "../../core/clock.ts";
import { fromAttributes } from "../../core/cloudevents.ts";
import { WaybillError } from "../../core/errors.ts";
import { whole } from "../../core/options.ts";
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
      const { consumer, topics, prefetch } = subscription;
      if (typeof consumer !== "string" || consumer === "") {
        throw new WaybillError("INVALID_OPTION", `consumer must be a name, not ${JSON.stringify(consumer)}`);
      }
      if (topics.length === 0) throw new WaybillError("INVALID_OPTION", `consumer ${consumer} needs at least one topic`);
      whole("prefetch", prefetch);
      return {
        [Symbol.asyncIterator]() {
          const ended = new AbortController();
          const deliveries = iterate(subscription, AbortSignal.any([signal, options.closing, ended.signal]), options);
          return {
            next: () => deliveries.next(),
            return() {
              ended.abort();
              return deliveries.return(undefined);
            },
          };
        },
      };
    },
  };
}

async function* iterate(
  { consumer, topics, prefetch }: Subscription,
  signal: AbortSignal,
  { log, clock }: SourceOptions,
): AsyncGenerator<Delivery, undefined> {
  if (signal.aborted) return;
  const cursors = new Map(topics.map((topic) => [topic, start(log, consumer, topic)]));
  const ledgers = new Map(topics.map((topic) => [topic, createAckLedger<number>()]));
  const wake = createWake();
  let unacked = 0;
  log.wakes.add(wake);
  try {
    while (!signal.aborted) {
      const room = prefetch - unacked;
      const [message] = room > 0 ? readAfter(log, cursors, 1) : [];
      if (message === undefined) {
        await wake.wait(clock, idleMs, signal);
        continue;
      }
      const { topic, offset } = message;
      cursors.set(topic, offset);
      const ledger = ledgers.get(topic)!;
      const ack = ledger.open(offset);
      let acked = false;
      unacked += 1;
      yield {
        topic,
        envelope: fromAttributes(message.attributes, message.headers, message.data.slice())!,
        async ack() {
          if (acked) return;
          acked = true;
          unacked -= 1;
          if (ack()) advance(log, consumer, topic, ledger.settled!);
          wake.notify();
        },
      };
    }
  } finally {
    log.wakes.delete(wake);
  }
}
