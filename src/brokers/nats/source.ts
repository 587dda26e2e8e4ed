import type { Source, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import { never, withDeadline, within } from "../../core/time.ts";
import type { Wake } from "../../core/wake.ts";
import { checkSubscription, receivingFrom, unreadable, type Content, type Reader as Receiver } from "../kit/receiving.ts";
import { asking, createApi, type Api } from "./api.ts";
import { takeOver, undoneBy } from "./consumers.ts";
import type { Connection, NatsMessage } from "./driver.ts";
import type { Link } from "./link.ts";
import { keepMarks } from "./marks.ts";
import { envelopeOf, headerBytes } from "./message.ts";
import { checkSubject } from "./names.ts";
import { openReader, type TopicReader, type TopicReaderOptions, type NatsReceived } from "./reader.ts";
import { findStream, streamFor } from "./streams.ts";
import { watchUnread, type Unread } from "./unread.ts";

interface SourceOptions {
  readonly link: Link;
  readonly provision: boolean;
  readonly replicas: number;
  readonly clock: Clock;
  readonly closing: AbortSignal;
}

const waitMs = 1_000;
const openMs = 10_000;
const flushMs = 2_000;

/**
 * Each receiving has a durable consumer of its own, which starts behind what its predecessor had acknowledged. Acknowledgements are sent
 * at once and not waited for. After the iteration has ended, one resolves when the server has taken it, or after `flushMs`.
 */
export function createSource(options: SourceOptions): Required<Pick<Source, "receive" | "oldest" | "lag">> & { flush(): Promise<void> } {
  const reading = new Set<TopicReader>();
  return {
    oldest: (topic, signal) => asking(options.link, signal, async (api) => (await findStream(api, topic))?.oldest ?? null),
    lag: (topic, signal, consumer) =>
      asking(options.link, signal, async (api) => {
        const stream = await findStream(api, topic);
        return stream === null ? null : undoneBy(api, { consumer, topic, stream });
      }),
    flush: () => withinFlush(options.clock, [...reading]),
    receive(subscription, signal) {
      const topics = checkSubscription(subscription);
      for (const topic of topics) checkSubject(topic, "INVALID_OPTION");
      const { clock, closing } = options;
      return receivingFrom(subscription, signal, {
        ...{ clock, closing, waitMs },
        open: (ending, wake) => open({ ...subscription, topics }, options, reading, ending, wake),
      });
    },
  };
}

async function open(
  subscription: Subscription,
  options: SourceOptions,
  reading: Set<TopicReader>,
  signal: AbortSignal,
  wake: Wake,
): Promise<Receiver> {
  const queue: NatsReceived[] = [];
  const held = new Map<TopicReader, number>();
  let ended = false;
  const hold = (reader: TopicReader, more: number): void => void held.set(reader, (held.get(reader) ?? 0) + more);
  const take = (received: NatsReceived): void => {
    hold(received.reader, 1);
    queue.push(received);
  };
  const readers = await openAll(subscription, signal, options, { take, changed: wake.notify });
  for (const reader of readers) reading.add(reader);
  return {
    next({ left, bytesLeft }) {
      for (const reader of readers) {
        const failure = reader.failure();
        if (failure !== null) throw failure;
        if ((held.get(reader) ?? 0) === 0) reader.ask(left, bytesLeft);
      }
      const next = left > 0 ? queue.shift() : undefined;
      if (next === undefined) return null;
      const { reader, message, sequence, place } = next;
      const { reply } = message;
      hold(reader, -1);
      let acked = false;
      const ack = async (): Promise<void> => {
        if (acked) return;
        acked = true;
        reader.acknowledge(reply, sequence);
        if (ended) await withinFlush(options.clock, [reader]);
      };
      return [{ topic: reader.topic, ...contentOf(message, place), ack }];
    },
    async close() {
      ended = true;
      for (const reader of readers) reader.close();
      await withinFlush(options.clock, readers);
      for (const reader of readers) reading.delete(reader);
    },
  };
}

function contentOf({ head, data, raw }: NatsMessage, place: string): Content & { readonly bytes: number } {
  const envelope = envelopeOf({ head, data });
  if (envelope !== null) return { envelope, bytes: raw.byteLength + head.headers.length * headerBytes };
  const why = "it is not an event: attributes are missing, or its headers cannot be read";
  return { ...unreadable(place, why, raw.slice()), bytes: raw.byteLength };
}

/** Waits for `flushMs` at most: a connection that has just died does not answer. */
async function withinFlush(clock: Clock, readers: readonly TopicReader[]): Promise<void> {
  await within(clock, flushMs, Promise.all(readers.map((reader) => reader.flush())));
}

/** `outer` also ends the loops of `watchUnread` and `keepMarks`. */
function openAll(
  { consumer, topics, prefetch, waiting = 0, missed }: Subscription,
  outer: AbortSignal,
  { link, provision, replicas, clock }: SourceOptions,
  how: Pick<TopicReaderOptions, "take" | "changed">,
): Promise<readonly TopicReader[]> {
  const watch = (connection: Connection, stream: string, durable: string, topic: string): Unread =>
    watchUnread({ api: createApi(connection, link.place, outer), clock, stream, durable, missed: () => missed?.(topic, null) });
  const open = async (api: Api, topic: string): Promise<TopicReader> => {
    const { connection, place } = api;
    const stream = await streamFor(api, topic, provision ? replicas : null);
    const taken = await takeOver(api, { consumer, topic, stream, bound: prefetch + waiting }, provision);
    if (stream.isLimited && taken.removed > 0) {
      const gone = taken.undone(stream.firstSeq - 1 - taken.removed, stream.firstSeq - 1);
      // In a stream of several subjects, it is unknown how many of the removed messages were the topic's.
      if (!stream.isGapless) missed?.(topic, null);
      else if (gone > 0) missed?.(topic, gone);
    }
    const unread = stream.isLimited && !stream.isGapless ? watch(connection, stream.name, taken.durable, topic) : null;
    const came: TopicReaderOptions["came"] = (before, sequence, delivery) => {
      unread?.came(sequence, delivery);
      if (!stream.isGapless || sequence === before + 1) return;
      const gone = taken.undone(before, sequence - 1);
      if (gone > 0) missed?.(topic, gone);
    };
    const { note } = taken;
    // The receiving's signal has aborted when its last mark is noted.
    const late = createApi(connection, place, never);
    const keeping: TopicReaderOptions["keeping"] = (now) =>
      note === null ? async () => undefined : keepMarks({ clock, signal: outer, now, note: (mark) => note(late, mark) });
    return openReader({ connection, clock, topic, stream: stream.name, ...taken, came, keeping, ...how });
  };
  return withDeadline(clock, openMs, outer, (signal) =>
    asking(link, signal, (api) => Promise.all(topics.map((topic) => open(api, topic)))),
  );
}
