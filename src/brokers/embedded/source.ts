import type { Source, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import { orAborted, until } from "../../core/time.ts";
import type { Wake } from "../../core/wake.ts";
import { checkSubscription, receivingFrom, type Reader } from "../kit/receiving.ts";
import { bytesOf } from "../../drivers/sqlite/connection.ts";
import { readAfter } from "./fetch.ts";
import type { Log } from "./log.ts";
import type { Offsets } from "./offsets.ts";
import { createPlace, type Mark } from "./place.ts";

interface SourceOptions {
  readonly log: Log;
  readonly offsets: Offsets;
  readonly clock: Clock;
  readonly pollIntervalMs: number;
  readonly closing: AbortSignal;
  /** One per open receiving; a publish of the same process wakes them. */
  readonly wakes: Set<Wake>;
}

/**
 * Reads from the consumer's acknowledged offset on, skips what it acknowledged beyond that, and counts unacknowledged deliveries. An ack is
 * noted at once and durable soon. An ack after the iteration has ended is durable when it resolves. When acks cannot be written, the
 * iteration rejects.
 */
export function createSource(options: SourceOptions): Required<Pick<Source, "receive" | "oldest" | "lag">> {
  return {
    async oldest(topic) {
      const row = await options.log.read((statements) => statements.get(oldest, [topic]));
      if (row === undefined) return null;
      const at = new Date(Buffer.from(bytesOf(row["at"])).toString());
      // A time that cannot be read may be any. With 1970 the inbox forgets no mark.
      return Number.isNaN(at.getTime()) ? new Date(0) : at;
    },
    lag: (topic, _signal, consumer) => options.offsets.undone(consumer, topic),
    receive(subscription, signal) {
      const topics = checkSubscription(subscription);
      const { clock, closing, pollIntervalMs: waitMs } = options;
      return receivingFrom(subscription, signal, {
        ...{ clock, closing, waitMs },
        open: (ending, wake) => open({ ...subscription, topics }, options, ending, wake),
      });
    },
  };
}

const oldest = `SELECT CAST(stored_at AS BLOB) AS at FROM waybill_broker_messages WHERE topic = ? ORDER BY "offset" LIMIT 1`;

const maxStalls = 3;

async function open(
  { consumer, topics, stalls = 0 }: Subscription,
  options: SourceOptions,
  signal: AbortSignal,
  wake: Wake,
): Promise<Reader> {
  const { log, offsets, wakes } = options;
  let ended = false;
  const start = await orAborted(offsets.start(consumer, topics), signal, () => new Map<string, Mark>());
  const places = new Map([...start].map(([topic, mark]) => [topic, createPlace(mark)]));
  wakes.add(wake);
  return {
    async next({ left, bytesLeft: bytes }) {
      if (offsets.failure !== null) throw offsets.failure;
      if (left <= 0) return null;
      const wanted = { count: left, bytes, careful: stalls >= maxStalls };
      const messages = await until(
        signal,
        log.read((statements) => readAfter(statements, places, wanted)),
      );
      if (messages === null || messages.length === 0) return null;
      return messages.flatMap(({ offset, ...message }) => {
        const { topic } = message;
        const place = places.get(topic)!;
        const acknowledge = place.read(offset);
        if (acknowledge === null) return [];
        const ack = async (): Promise<void> => {
          acknowledge();
          offsets.note(consumer, topic, place);
          if (ended) await offsets.flush();
        };
        return [{ ...message, ack }];
      });
    },
    close() {
      ended = true;
      wakes.delete(wake);
      return offsets.flush();
    },
  };
}
