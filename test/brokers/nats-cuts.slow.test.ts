import { afterAll, beforeAll, expect, test } from "vitest";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import type { Envelope } from "../../src/core/event.ts";
import { seededRandom } from "../../src/core/random.ts";
import type { NatsServer } from "../servers/nats.ts";
import { startCuttingProxy } from "../support/cutting-proxy.ts";
import { storedRaw } from "../support/nats-raw.ts";
import { describeEachNats, freshTopic, never, raw, storeAll, storedIn, using } from "./nats.ts";

/** Where the network cuts: in every word of the protocol, in most messages, and between many of them. */
const cuts = [
  { seed: 1, most: 3, count: 60 },
  { seed: 2, most: 40, count: 200 },
  { seed: 3, most: 700, count: 400 },
  { seed: 4, most: 20_000, count: 400 },
];
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
/** The client gives a Buffer when a message came in one piece, and plain bytes when it did not: `String(data)` fails now and then. */
const kindsOf = (all: readonly { readonly data: Uint8Array }[]): string[] => [...new Set(all.map(({ data }) => data.constructor.name))];

await describeEachNats("nats: wherever the network cuts its bytes", (start) => {
  let server: NatsServer;
  beforeAll(async () => void (server = await start()));
  afterAll(() => server[Symbol.asyncDispose]());

  const throughCuts = async <T>({ seed, most }: (typeof cuts)[number], work: (url: string) => Promise<T>): Promise<T> => {
    await using proxy = await startCuttingProxy(server.port, seed, most);
    return await work(`nats://127.0.0.1:${proxy.port}`);
  };

  /** Data of nothing to some hundred bytes, and a few of several chunks. */
  function eventsOf({ seed, most, count }: (typeof cuts)[number]): readonly Envelope[] {
    const random = seededRandom(seed);
    return Array.from({ length: count }, (_, n) => {
      const bytes = Math.floor(random.next() ** 3 * (n % 50 === 7 ? 60 * most : 600));
      return sampleEvent({ data: random.bytes(bytes), contentType: "application/octet-stream", aggregateId: `order-${n % 7}` });
    });
  }

  async function publishing(events: readonly Envelope[], url = server.url()): Promise<string> {
    const topic = freshTopic();
    await using({ url: server.url() }, (broker) => broker.provision([topic], ["shop"]));
    await using({ url }, (broker) => storeAll(broker, topic, events));
    return topic;
  }

  test.each(cuts)("the stream holds what was published (seed $seed)", async (cut) => {
    const events = eventsOf(cut);
    const topic = await throughCuts(cut, (url) => publishing(events, url));
    const stream = await raw(server.url(), (_, manager) => manager.streams.find(topic));
    const stored = await storedRaw(
      server.url(),
      stream,
      events.map((_, n) => n + 1),
    );
    expect(stored.map((one) => text(one.data)).sort()).toEqual(events.map(({ data }) => text(data)).sort());
  });

  test.each(cuts)("the source delivers what was published, and nothing changes it later (seed $seed)", async (cut) => {
    const events = eventsOf(cut);
    const topic = await publishing(events);
    await throughCuts(cut, (url) =>
      using({ url }, async (broker) => {
        const held: { readonly delivery: Delivery; readonly came: string }[] = [];
        for await (const delivery of broker.receive({ consumer: "shop", topics: [topic], prefetch: 1_000 }, never)) {
          held.push({ delivery, came: text(delivery.envelope.data) });
          if (held.length === events.length) break;
        }
        const dataById = new Map(events.map(({ id, data }) => [id, text(data)]));
        expect(held.map(({ delivery }) => delivery.unreadable)).toEqual(events.map(() => undefined));
        for (const { delivery, came } of held) {
          expect(came, delivery.envelope.id).toBe(dataById.get(delivery.envelope.id));
          expect(text(delivery.envelope.data), delivery.envelope.id).toBe(came);
        }
        expect(kindsOf(held.map(({ delivery }) => delivery.envelope))).toEqual(["Uint8Array"]);
      }),
    );
  });

  test.each(cuts)("the official client gives these tests what was published, and nothing changes it later (seed $seed)", async (cut) => {
    const events = eventsOf(cut);
    const topic = await publishing(events);
    const stored = await throughCuts(cut, (url) => within(15_000, "the stored", storedIn(url, topic)));
    expect(stored.map(({ data }) => text(data)).sort()).toEqual(events.map(({ data }) => text(data)).sort());
    expect(kindsOf(stored)).toEqual(["Uint8Array"]);
  });
});
