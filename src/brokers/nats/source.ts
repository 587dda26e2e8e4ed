import type { Delivery, Source, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import { createRoom } from "../../core/room.ts";
import { follow, type Follower } from "../../core/signal.ts";
import { createWake } from "../../core/wake.ts";
import { checkSubscription, receiving } from "../kit/receiving.ts";
import { unreadableEnvelope } from "../../core/unreadable.ts";
import { createApi, explain } from "./api.ts";
import { takeOver } from "./consumers.ts";
import type { Connection, Message } from "./driver.ts";
import type { Link } from "./link.ts";
import { envelopeOf, headerBytes } from "./message.ts";
import { checkSubject } from "./names.ts";
import { openReader, type Reader, type ReaderOptions, type Received } from "./reader.ts";
import { findStream, makeStream, needStream } from "./streams.ts";
import { watchUnread, type Unread } from "./unread.ts";

export interface SourceOptions {
  readonly link: Link;
  readonly provision: boolean;
  readonly replicas: number;
  readonly clock: Clock;
  readonly closing: AbortSignal;
}

const lookMs = 1_000;
const openMs = 10_000;
const flushMs = 2_000;

/**
 * Each receiving has a durable consumer of its own, which starts behind what its predecessor had acknowledged. Acknowledgements are sent
 * at once and not waited for; those given after the iteration has ended are taken by the server when they resolve.
 */
export function createSource(options: SourceOptions): Required<Pick<Source, "receive" | "oldest">> & { flush(): Promise<void> } {
  const reading = new Set<Reader>();
  return {
    async oldest(topic, signal) {
      const { link } = options;
      try {
        const stream = await findStream(createApi(await link.get(signal), link.place, signal), link.place, topic);
        return stream?.oldest ?? null;
      } catch (error) {
        throw explain(error, link.place);
      }
    },
    flush: () => withinFlush(options.clock, [...reading]),
    receive(subscription, signal) {
      const topics = checkSubscription(subscription);
      for (const topic of topics) checkSubject(topic, "INVALID_OPTION");
      return receiving(signal, options.closing, (ending) => iterate({ ...subscription, topics }, ending, options, reading));
    },
  };
}

async function* iterate(
  subscription: Subscription,
  { signal, release }: Follower,
  options: SourceOptions,
  reading: Set<Reader>,
): AsyncGenerator<Delivery, undefined> {
  const { clock } = options;
  const wake = createWake();
  const room = createRoom(subscription);
  const queue: Received[] = [];
  const held = new Map<Reader, number>();
  let readers: readonly Reader[] = [];
  let ended = false;
  const running = follow(signal);
  const take = (received: Received): void => {
    held.set(received.reader, (held.get(received.reader) ?? 0) + 1);
    queue.push(received);
  };
  try {
    if (signal.aborted) return;
    readers = await openAll(subscription, running.signal, options, { take, changed: () => wake.notify() });
    for (const reader of readers) reading.add(reader);
    while (!signal.aborted) {
      for (const reader of readers) {
        const failure = reader.failure();
        if (failure !== null) throw failure;
        if ((held.get(reader) ?? 0) === 0) reader.ask(room.left, room.bytesLeft);
      }
      const next = room.left > 0 ? queue.shift() : undefined;
      if (next === undefined) {
        await wake.wait(clock, lookMs, signal);
        continue;
      }
      const { reader, message, place } = next;
      held.set(reader, (held.get(reader) ?? 0) - 1);
      const { reply } = message;
      const content = contentOf(message, place);
      const taken = room.take(content.bytes);
      let acked = false;
      yield {
        topic: reader.topic,
        ...content,
        async ack() {
          if (acked) return;
          acked = true;
          taken.ack();
          reader.acknowledge(reply);
          wake.notify();
          if (ended) await withinFlush(clock, [reader]);
        },
        aside() {
          taken.aside();
          wake.notify();
        },
      };
    }
  } finally {
    ended = true;
    running.abort();
    running.release();
    release();
    for (const reader of readers) reader.close();
    await withinFlush(clock, readers);
    for (const reader of readers) reading.delete(reader);
  }
}

function contentOf(
  { head, data, raw }: Message,
  place: string,
): Required<Pick<Delivery, "envelope" | "bytes">> & Pick<Delivery, "unreadable"> {
  const envelope = envelopeOf({ head, data });
  if (envelope !== null) return { envelope, bytes: raw.byteLength + head.headers.length * headerBytes };
  const why = "it is not an event: attributes are missing, or its headers cannot be read";
  return { envelope: unreadableEnvelope(`unreadable:${place}`), unreadable: { why, raw: raw.slice() }, bytes: raw.byteLength };
}

/** A link that has just died does not answer, and nobody should wait for it. */
async function withinFlush(clock: Clock, readers: readonly Reader[]): Promise<void> {
  const done = new AbortController();
  const flushed = Promise.all(readers.map((reader) => reader.flush())).finally(() => done.abort());
  await Promise.race([flushed, clock.sleep(flushMs, done.signal)]);
}

async function openAll(
  { consumer, topics, prefetch, waiting = 0, missed }: Subscription,
  outer: AbortSignal,
  { link, provision, replicas, clock }: SourceOptions,
  how: Pick<ReaderOptions, "take" | "changed">,
): Promise<readonly Reader[]> {
  const opening = follow(outer);
  void clock.sleep(openMs, opening.signal).then(() => opening.abort());
  const watch = (connection: Connection, stream: string, durable: string, topic: string): Unread =>
    watchUnread({ api: createApi(connection, link.place, outer), clock, stream, durable, missed: () => missed?.(topic, null) });
  const open = async (connection: Connection, topic: string): Promise<Reader> => {
    const api = createApi(connection, link.place, opening.signal);
    const stream = await (provision ? makeStream(api, link.place, topic, replicas) : needStream(api, link.place, topic));
    const taken = await takeOver(api, { consumer, topic, stream, bound: prefetch + waiting }, provision);
    // Nobody knows how many of them were the topic's.
    if (stream.isLimited && !stream.isGapless && stream.firstSeq > taken.from + 1) missed?.(topic, null);
    const unread = stream.isLimited && !stream.isGapless ? watch(connection, stream.name, taken.durable, topic) : null;
    const came: ReaderOptions["came"] = (before, sequence, delivery) => {
      unread?.came(sequence, delivery);
      if (!stream.isGapless || sequence === before + 1) return;
      const gone = taken.undone(before, sequence - 1);
      if (gone > 0) missed?.(topic, gone);
    };
    return openReader({ connection, clock, topic, stream: stream.name, ...taken, came, ...how });
  };
  try {
    const connection = await link.get(opening.signal);
    return await Promise.all(topics.map((topic) => open(connection, topic)));
  } catch (error) {
    if (outer.aborted) return [];
    throw explain(error, link.place);
  } finally {
    opening.abort();
    opening.release();
  }
}
