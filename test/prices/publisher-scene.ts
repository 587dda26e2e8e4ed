import { expect } from "vitest";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import type { Place as Broker } from "../fuzz/publishers.ts";
import { heapNow } from "./heap.ts";
import type { PublisherMessages } from "./messages.ts";
import { trips, type Database } from "./places.ts";

/** What hostile messages cost a subscriber and its database, for each message. */
export interface MessagePrice {
  readonly trips: number;
  readonly read: number;
  /** KiB that the database sends. */
  readonly sent: number;
  /** Connections to the database: a handler that failed may still use its own, so that one is closed. */
  readonly connections: number;
  readonly told: number;
  readonly heap: number;
  readonly records: Readonly<Record<string, number>>;
  /** Messages that the broker still has for the consumer. */
  readonly left: number | null;
  /** Messages to the database in a second with nothing to do, before and afterwards. */
  readonly idle: readonly [before: number, after: number];
  /** For each of 50 good messages, before and afterwards. */
  readonly good: { readonly trips: readonly [before: number, after: number]; readonly read: readonly [before: number, after: number] };
}

const consumer = "priced";
const goods = 50;
const atOnce = 16;
const never = new AbortController().signal;
let topics = 0;

export async function priceOfMessages(database: Database, broker: Broker, kind: PublisherMessages): Promise<MessagePrice> {
  const topic = `price-${process.pid}-${++topics}.events`;
  await using place = await database.create();
  await using sink = broker.open();
  await using source = broker.open();
  await sink.provision([topic], [consumer]);
  const count = { trips: 0 };
  const counted = <Of extends object>(of: Of): Of =>
    new Proxy(of, {
      get: (target, name) => {
        const value = Reflect.get(target, name) as unknown;
        return typeof value === "function"
          ? (...given: unknown[]): unknown => trips.run(count, (): unknown => Reflect.apply(value, target, given))
          : value;
      },
    });
  let [told, ended] = [0, 0];
  const observe = (event: PathEvent): void => {
    told += 1;
    if (event.type === "subscriber.handled" || event.type === "subscriber.died" || event.type === "subscriber.ignored") ended += 1;
  };
  const { inbox, letters } = place.store;
  const subscriber = createSubscriber({
    ...{ consumer, source, topics: [topic], observe, retry: { delaysMs: [10, 20] } },
    inbox: { inbox: counted(inbox), letters: counted(letters) },
    handlers: {
      Known: () => undefined,
      Doomed: () => {
        throw new Error("the handler refuses it");
      },
    },
  });
  const between = async (work: () => Promise<void>) => {
    const [from, before] = [count.trips, await place.meter()];
    await work();
    const after = await place.meter();
    return {
      trips: count.trips - from,
      read: after.read! - before.read!,
      sent: after.sent! - before.sent!,
      connections: after.connections - before.connections,
    };
  };
  const until = (target: number): Promise<void> =>
    expect.poll(() => ended, { timeout: 240_000, interval: 5 }).toBeGreaterThanOrEqual(target);
  const idle = async (): Promise<number> => (await between(() => new Promise((resolve) => setTimeout(resolve, 1_000)))).trips;
  const good = () =>
    between(async () => {
      const envelopes = Array.from({ length: goods }, (_, n) => sampleEvent({ aggregateId: `good-${n}`, type: "Known" }));
      const target = ended + goods;
      const results = await sink.publish(
        envelopes.map((envelope) => ({ topic, source: "/price", envelope })),
        never,
      );
      expect(results.map(({ status }) => status)).toEqual(envelopes.map(() => "stored"));
      await until(target);
    });
  await subscriber.start();
  try {
    await good(); // plans are made, modules are loaded
    const [goodBefore, idleBefore] = [await good(), await idle()];
    const heap = await heapNow();
    told = 0;
    const dealing = await between(async () => {
      const target = ended + kind.count;
      for (let from = 0; from < kind.count; from += atOnce) {
        const some = Array.from({ length: Math.min(atOnce, kind.count - from) }, (_, n) => kind.message(from + n));
        await Promise.all(some.map((message) => broker.publish(topic, message)));
      }
      await until(target);
    });
    const own = told;
    const [goodAfter, idleAfter] = [await good(), await idle()];
    const after = await heapNow();
    const records = await place.records();
    await subscriber.drain();
    return {
      trips: dealing.trips / kind.count,
      read: dealing.read / kind.count,
      sent: dealing.sent / 1_024 / kind.count,
      connections: dealing.connections / kind.count,
      told: own / kind.count,
      heap: (after - heap) / 1_024,
      records: { ...records, inbox: (records["inbox"] ?? 0) - 3 * goods },
      left: await broker.left(topic, consumer),
      idle: [idleBefore, idleAfter],
      good: { trips: [goodBefore.trips / goods, goodAfter.trips / goods], read: [goodBefore.read / goods, goodAfter.read / goods] },
    };
  } finally {
    await subscriber.stop();
  }
}
