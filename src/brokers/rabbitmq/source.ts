import type { Delivery, Source, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { createRoom } from "../../core/room.ts";
import type { Follower } from "../../core/signal.ts";
import { createWake } from "../../core/wake.ts";
import { checkSubscription, receiving } from "../kit/receiving.ts";
import type { Connection } from "./driver.ts";
import { explain, type Links } from "./link.ts";
import { checkTopic, queueName } from "./names.ts";
import { openReader, type Reader } from "./reader.ts";
import { needQueue, provision, type Topology } from "./topology.ts";

export interface SourceOptions {
  readonly links: Links;
  readonly topology: Topology;
  readonly provision: boolean;
  readonly clock: Clock;
  readonly closing: AbortSignal;
}

/** While it is full, how long it takes to notice that the channel is gone. */
const lookMs = 1_000;
/** How long a receiving that has ended keeps its channel for acknowledgements that are still to come. */
const lingerMs = 2_000;
const closeMs = 1_000;
/** AMQP writes the number with two bytes. */
const maxPrefetch = 65_535;

interface Readers {
  readonly all: Set<Reader>;
  /** Whose receiving has ended, and which still wait for acknowledgements. */
  readonly leaving: Set<Reader>;
}

export function createSource(options: SourceOptions): Pick<Source, "receive"> & { close(): Promise<void> } {
  const readers: Readers = { all: new Set(), leaving: new Set() };
  return {
    close: async () => void (await Promise.all([...readers.all].map((reader) => closed(reader, options.clock)))),
    receive(subscription, signal) {
      const topics = check(subscription);
      return receiving(signal, options.closing, (ending) => iterate({ ...subscription, topics }, ending, options, readers));
    },
  };
}

function check(subscription: Subscription): readonly string[] {
  const { consumer, prefetch, waiting = 0 } = subscription;
  const topics = checkSubscription(subscription);
  for (const topic of topics) {
    checkTopic(topic, "INVALID_OPTION");
    queueName(consumer, topic);
  }
  if (prefetch + waiting > maxPrefetch)
    throw new WaybillError(
      "INVALID_OPTION",
      `prefetch and waiting are ${prefetch + waiting} together, and AMQP takes no more than ${maxPrefetch}`,
    );
  return topics;
}

async function* iterate(
  subscription: Subscription,
  { signal, release }: Follower,
  options: SourceOptions,
  readers: Readers,
): AsyncGenerator<Delivery, undefined> {
  const { clock } = options;
  const room = createRoom(subscription);
  const wake = createWake();
  let reader: Reader | null = null;
  try {
    if (signal.aborted) return;
    reader = await open(subscription, signal, options, readers, () => wake.notify());
    while (!signal.aborted) {
      const failure = reader.failure();
      if (failure !== null) throw failure;
      const received = reader.next(room.fits);
      if (received === undefined) {
        await wake.wait(clock, lookMs, signal);
        continue;
      }
      const { topic, envelope, unreadable, bytes } = received;
      const taken = room.take(bytes);
      yield {
        topic,
        envelope,
        ...(unreadable === undefined ? {} : { unreadable }),
        bytes,
        async ack() {
          taken.ack();
          wake.notify();
          await received.ack();
        },
        aside() {
          taken.aside();
          received.aside();
          wake.notify();
        },
      };
    }
  } catch (error) {
    // What the end of the connection cuts short is no failure when the end was asked for.
    if (!signal.aborted) throw error;
  } finally {
    release();
    if (reader !== null) await leave(reader, clock, readers);
  }
}

/**
 * Until the channel is closed, nobody else is given anything of its queues, so that what comes late is still acknowledged and not
 * overtaken; then what is not acknowledged comes again, in order.
 */
async function leave(reader: Reader, clock: Clock, readers: Readers): Promise<void> {
  readers.leaving.add(reader);
  const end = (): Promise<void> =>
    closed(reader, clock).finally(() => {
      readers.all.delete(reader);
      readers.leaving.delete(reader);
    });
  if (reader.out === 0 || reader.failure() !== null) return end();
  const until = clock.monotonic() + lingerMs;
  void (async () => {
    while (reader.out > 0 && reader.failure() === null && clock.monotonic() < until) await clock.sleep(10);
    await end();
  })();
}

/** A server that does not answer is not waited for. */
async function closed(reader: Reader, clock: Clock): Promise<void> {
  const done = new AbortController();
  const closing = reader.close().finally(() => done.abort());
  await Promise.race([closing, clock.sleep(closeMs, done.signal)]);
}

async function open(
  { consumer, topics, prefetch, waiting = 0, bytes = Infinity }: Subscription,
  signal: AbortSignal,
  { links, topology, provision: make, clock }: SourceOptions,
  readers: Readers,
  changed: () => void,
): Promise<Reader> {
  let connection: Connection | null = null;
  try {
    connection = await links.own(signal);
    if (make) await provision(connection, topology, topics, [consumer]);
    const queues: { topic: string; name: string }[] = [];
    for (const topic of topics) queues.push({ topic, name: await needQueue(connection, topology, consumer, topic) });
    // One that has ended, here, and still waits for acknowledgements would keep its messages from this one.
    const before = [...readers.leaving].filter((reader) => reader.queues.some((queue) => queues.some(({ name }) => name === queue)));
    await Promise.all(before.map((reader) => closed(reader, clock)));
    const reader = await openReader({ connection, queues, prefetch: prefetch + waiting, bytes, changed });
    readers.all.add(reader);
    return reader;
  } catch (error) {
    await connection?.close();
    throw explain(error, links.shown);
  }
}
