import type { Delivery, Source, Subscription } from "../../contracts/source.ts";
import { createAckLedger } from "../../core/ack-ledger.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { whole } from "../../core/options.ts";
import { createWake, type Wake } from "../../core/wake.ts";
import { readAfter } from "./fetch.ts";
import { orAborted } from "../../core/signal.ts";
import type { Log } from "./log.ts";
import type { Offsets } from "./offsets.ts";

export interface SourceOptions {
  readonly log: Log;
  readonly offsets: Offsets;
  readonly clock: Clock;
  readonly pollIntervalMs: number;
  readonly closing: AbortSignal;
  /** Those who wait; a publish of the same process wakes them. */
  readonly wakes: Set<Wake>;
}

/**
 * Reads from the consumer's acknowledged offset on, and counts what is in hand. An ack is noted at once and durable soon;
 * one given after the iteration has ended is durable when it resolves. When acks cannot be written, the iteration rejects.
 */
export function createSource(options: SourceOptions): Pick<Source, "receive"> {
  return {
    receive(subscription, signal) {
      const topics = check(subscription);
      return {
        [Symbol.asyncIterator]() {
          const ended = new AbortController();
          const deliveries = iterate({ ...subscription, topics }, AbortSignal.any([signal, options.closing, ended.signal]), options);
          return {
            next: () => deliveries.next(),
            return() {
              // A generator that waits for its next message would not hear of it otherwise.
              ended.abort();
              return deliveries.return(undefined);
            },
          };
        },
      };
    },
  };
}

function check({ consumer, topics, prefetch }: Subscription): readonly string[] {
  if (typeof consumer !== "string" || consumer === "") {
    throw new WaybillError("INVALID_OPTION", `consumer must be a name, not ${JSON.stringify(consumer)}`);
  }
  if (topics.length === 0) throw new WaybillError("INVALID_OPTION", `consumer ${consumer} needs at least one topic`);
  whole("prefetch", prefetch);
  return [...new Set(topics)];
}

async function* iterate(
  { consumer, topics, prefetch }: Subscription,
  signal: AbortSignal,
  { log, offsets, clock, pollIntervalMs, wakes }: SourceOptions,
): AsyncGenerator<Delivery, undefined> {
  if (signal.aborted) return;
  const wake = createWake();
  const ledgers = new Map(topics.map((topic) => [topic, createAckLedger<number>()]));
  let unacked = 0;
  let ended = false;
  const open = (topic: string, offset: number): (() => void) => {
    const ledger = ledgers.get(topic)!;
    const ack = ledger.open(offset);
    let given = false;
    unacked += 1;
    return () => {
      if (given) return;
      given = true;
      unacked -= 1;
      if (ack()) offsets.note(consumer, topic, ledger.settled!);
    };
  };

  wakes.add(wake);
  try {
    const cursors = new Map(await orAborted(offsets.start(consumer, topics), signal, () => new Map<string, number>()));
    while (!signal.aborted) {
      if (offsets.failure !== null) throw offsets.failure;
      const room = prefetch - unacked;
      const messages =
        room > 0
          ? await orAborted(
              log.read((statements) => readAfter(statements, cursors, room)),
              signal,
              () => [],
            )
          : [];
      const opened = messages.map(({ topic, offset, envelope }) => {
        cursors.set(topic, offset);
        const ack = open(topic, offset);
        if (envelope === null) {
          offsets.noteSkipped(consumer, topic, offset, "not an event: it lacks attributes, or they cannot be read");
          ack();
        }
        return { topic, envelope, ack };
      });
      for (const { topic, envelope, ack } of opened) {
        if (signal.aborted) return;
        if (envelope === null) continue;
        yield {
          topic,
          envelope,
          async ack() {
            ack();
            wake.notify();
            if (ended) await offsets.flush();
          },
        };
      }
      if (messages.length === 0) await wake.wait(clock, pollIntervalMs, signal);
    }
  } finally {
    ended = true;
    wakes.delete(wake);
    await offsets.flush();
  }
}
