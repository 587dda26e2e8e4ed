import type { Source, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { within } from "../../core/time.ts";
import { checkSubscription, receivingFrom } from "../kit/receiving.ts";
import type { Connection } from "./driver.ts";
import { explain, type Links } from "./link.ts";
import { checkTopic, queueName } from "./names.ts";
import { openReader, type QueueReader } from "./reader.ts";
import { needQueue, provision, readyFor, type Topology } from "./topology.ts";

interface SourceOptions {
  readonly links: Links;
  readonly topology: Topology;
  readonly provision: boolean;
  readonly clock: Clock;
  readonly closing: AbortSignal;
}

const waitMs = 1_000;
/** How long a receiving that has ended keeps its channel for acknowledgements that are still to come. */
const lingerMs = 2_000;
const closeMs = 1_000;
/** AMQP writes the number with two bytes. */
const maxPrefetch = 65_535;

interface Readers {
  readonly all: Set<QueueReader>;
  /** Readers whose receiving has ended, and which still wait for acknowledgements. */
  readonly leaving: Set<QueueReader>;
}

export function createSource(options: SourceOptions): Required<Pick<Source, "receive" | "lag">> & { close(): Promise<void> } {
  const readers: Readers = { all: new Set(), leaving: new Set() };
  return {
    close: async () => void (await Promise.all([...readers.all].map((reader) => closed(reader, options.clock)))),
    // AMQP does not report what a reader holds: while there is one, up to `prefetch` + `waiting` messages are left out.
    async lag(topic, signal, consumer) {
      const { links } = options;
      checkTopic(topic, "INVALID_OPTION");
      return readyFor(await links.consuming.open(signal), consumer, topic).catch((error: unknown) => {
        throw explain(error, links.shown);
      });
    },
    receive(subscription, signal) {
      const topics = check(subscription);
      const { clock, closing } = options;
      return receivingFrom(subscription, signal, {
        ...{ clock, closing, waitMs },
        async open(ending, wake) {
          const reader = await open({ ...subscription, topics }, ending, options, readers, wake.notify);
          return { next: reader.next, close: () => leave(reader, clock, readers) };
        },
      });
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

/**
 * Until the channel is closed, the server gives no other receiver messages of its queues. So late acknowledgements still count, and no
 * message is overtaken. After that, the server redelivers unacknowledged messages in order.
 */
async function leave(reader: QueueReader, clock: Clock, readers: Readers): Promise<void> {
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

/** Waits for `closeMs` at most: the server may not answer. */
async function closed(reader: QueueReader, clock: Clock): Promise<void> {
  await within(clock, closeMs, reader.close());
}

async function open(
  { consumer, topics, prefetch, waiting = 0, bytes = Infinity }: Subscription,
  signal: AbortSignal,
  { links, topology, provision: make, clock }: SourceOptions,
  readers: Readers,
  changed: () => void,
): Promise<QueueReader> {
  let connection: Connection | null = null;
  try {
    connection = await links.own(signal);
    if (make) await provision(connection, topology, topics, [consumer]);
    const queues: { topic: string; name: string }[] = [];
    for (const topic of topics) queues.push({ topic, name: await needQueue(connection, topology, consumer, topic) });
    // A reader here that has ended, and still waits for acknowledgements, would keep its messages from the new one.
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
