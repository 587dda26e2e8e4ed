import type { Delivery, Source, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import { createRoom } from "../../core/room.ts";
import { orAborted, type Follower } from "../../core/signal.ts";
import { createWake, type Wake } from "../../core/wake.ts";
import { checkSubscription, receiving } from "../kit/receiving.ts";
import { bytesOf } from "../../drivers/sqlite/connection.ts";
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
export function createSource(options: SourceOptions): Required<Pick<Source, "receive" | "oldest">> {
  return {
    async oldest(topic) {
      const row = await options.log.read((statements) => statements.get(oldest, topic));
      if (row === undefined) return null;
      const at = new Date(Buffer.from(bytesOf(row["at"])).toString());
      // A time that cannot be read may be any: then nothing is known to be gone.
      return Number.isNaN(at.getTime()) ? new Date(0) : at;
    },
    receive(subscription, signal) {
      const topics = checkSubscription(subscription);
      return receiving(signal, options.closing, (ending) => iterate({ ...subscription, topics }, ending, options));
    },
  };
}

const oldest = `SELECT CAST(stored_at AS BLOB) AS at FROM waybill_broker_messages WHERE topic = ? ORDER BY "offset" LIMIT 1`;

const maxStalls = 3;

async function* iterate(
  { consumer, topics, stalls = 0, ...bounds }: Subscription,
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
      const { left, bytesLeft } = room;
      const messages =
        left > 0
          ? await orAborted(
              log.read((statements) => readAfter(statements, places, { count: left, bytes: bytesLeft, careful: stalls >= maxStalls })),
              signal,
              () => [],
            )
          : [];
      const opened = messages.flatMap(({ offset, ...message }) => {
        const { topic } = message;
        const place = places.get(topic)!;
        const acknowledge = place.read(offset);
        if (acknowledge === null) return [];
        const ack = (): void => {
          acknowledge();
          offsets.note(consumer, topic, place);
        };
        return [{ message, ack, taken: room.take(message.bytes) }];
      });
      for (const { message, ack, taken } of opened) {
        if (signal.aborted) return;
        yield {
          ...message,
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
