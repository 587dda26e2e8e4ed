import type { Delivery, Source, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { whole } from "../../core/options.ts";
import { createRoom } from "../../core/room.ts";
import { follow, orAborted, type Follower } from "../../core/signal.ts";
import { createWake, type Wake } from "../../core/wake.ts";
import { readAfter } from "./fetch.ts";
import type { Log } from "./log.ts";
import type { Offsets } from "./offsets.ts";
import { createPlace, type Mark } from "./place.ts";

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
 * Reads from the consumer's acknowledged offset on, past what it acknowledged beyond it, and counts what is in hand. An ack
 * is noted at once and durable soon; one given after the iteration has ended is durable when it resolves. When acks cannot be
 * written, the iteration rejects.
 */
export function createSource(options: SourceOptions): Pick<Source, "receive"> {
  return {
    receive(subscription, signal) {
      const topics = check(subscription);
      return {
        [Symbol.asyncIterator]() {
          const ending = follow(signal, options.closing);
          const deliveries = iterate({ ...subscription, topics }, ending, options);
          return {
            next: () => deliveries.next(),
            return() {
              // A generator that waits for its next message would not hear of it otherwise.
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

function check({ consumer, topics, prefetch, waiting = 0 }: Subscription): readonly string[] {
  if (typeof consumer !== "string" || consumer === "") {
    throw new WaybillError("INVALID_OPTION", `consumer must be a name, not ${JSON.stringify(consumer)}`);
  }
  if (topics.length === 0) throw new WaybillError("INVALID_OPTION", `consumer ${consumer} needs at least one topic`);
  whole("prefetch", prefetch);
  whole("waiting", waiting, 0);
  return [...new Set(topics)];
}

async function* iterate(
  { consumer, topics, ...bounds }: Subscription,
  { signal, release }: Follower,
  { log, offsets, clock, pollIntervalMs, wakes }: SourceOptions,
): AsyncGenerator<Delivery, undefined> {
  if (signal.aborted) {
    release();
    return;
  }
  const wake = createWake();
  const room = createRoom(bounds);
  let ended = false;

  wakes.add(wake);
  try {
    const start = await orAborted(offsets.start(consumer, topics), signal, () => new Map<string, Mark>());
    const places = new Map([...start].map(([topic, mark]) => [topic, createPlace(mark)]));
    while (!signal.aborted) {
      if (offsets.failure !== null) throw offsets.failure;
      const { left } = room;
      const messages =
        left > 0
          ? await orAborted(
              log.read((statements) => readAfter(statements, places, left)),
              signal,
              () => [],
            )
          : [];
      const opened = messages.flatMap(({ topic, offset, envelope }) => {
        const place = places.get(topic)!;
        const acknowledge = place.read(offset);
        if (acknowledge === null) return [];
        const ack = (): void => {
          acknowledge();
          offsets.note(consumer, topic, place);
        };
        if (envelope === null) {
          offsets.noteSkipped(consumer, topic, offset, "not an event: it lacks attributes, or they cannot be read");
          ack();
          return [];
        }
        return [{ topic, envelope, ack, taken: room.take() }];
      });
      for (const { topic, envelope, ack, taken } of opened) {
        if (signal.aborted) return;
        yield {
          topic,
          envelope,
          async ack() {
            taken.ack();
            ack();
            wake.notify();
            if (ended) await offsets.flush();
          },
          aside() {
            taken.aside();
            wake.notify();
          },
        };
      }
      if (messages.length === 0) await wake.wait(clock, pollIntervalMs, signal);
    }
  } finally {
    ended = true;
    release();
    wakes.delete(wake);
    await offsets.flush();
  }
}
