import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, beforeAll, expect, test } from "vitest";
import { nats, type Nats } from "../../src/brokers/nats/index.ts";
import { quiet, sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Delivery, Subscription } from "../../src/contracts/source.ts";
import type { Envelope } from "../../src/core/event.ts";
import { deadLetterTopic } from "../../src/subscriber/dead-letter-topic.ts";
import type { NatsServer } from "../servers/nats.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { describeEachNats, freshTopic, never, outgoing, raw, storeAll, storedIn, using } from "./nats.ts";

await describeEachNats("nats: reading", (start) => {
  let server: NatsServer;
  beforeAll(async () => void (server = await start()));
  afterAll(() => server[Symbol.asyncDispose]());

  const many = (count: number): Envelope[] => Array.from({ length: count }, (_, n) => sampleEvent({ aggregateId: `order-${n}` }));
  const ids = (all: readonly { readonly id: string }[]): string[] => all.map(({ id }) => id);
  const idsOf = (all: readonly Delivery[]): string[] => ids(all.map(({ envelope }) => envelope));

  function receive(source: Nats, topic: string, more: Partial<Subscription> = {}, signal = never) {
    const deliveries = source.receive({ consumer: "shop", topics: [topic], prefetch: 50, ...more }, signal)[Symbol.asyncIterator]();
    return {
      deliveries,
      async take(count: number): Promise<Delivery[]> {
        const taken: Delivery[] = [];
        while (taken.length < count) {
          const next = await within(15_000, `delivery ${taken.length + 1} of ${count}`, deliveries.next());
          if (next.done === true) throw new Error("it ended");
          taken.push(next.value);
        }
        return taken;
      },
    };
  }

  const durables = (topic: string) =>
    raw(server.url(), async (_, manager) => {
      const found = [];
      for await (const info of manager.consumers.list(await manager.streams.find(topic))) found.push(info);
      return found;
    });

  test("without a stream or a durable consumer says how to make them", async () => {
    const topic = freshTopic();
    await using({ url: server.url() }, async (broker) => {
      await expect(receive(broker, topic).take(1)).rejects.toThrow(`waybill migrate --broker ${server.url()} --topics ${topic}`);
      await broker.provision([topic]);
      await expect(receive(broker, topic).take(1)).rejects.toThrow(`--topics ${topic} --consumers shop`);
      await broker.provision([topic], ["shop", "other"]);
      await broker.provision([topic], ["shop"]);
      expect(await durables(topic)).toHaveLength(2);
      const [event] = many(1);
      await broker.publish(outgoing([event!], topic), never);
      expect(idsOf(await receive(broker, topic).take(1))).toEqual([event!.id]);
      expect(() => broker.receive({ consumer: "shop", topics: ["a..b"], prefetch: 1 }, never)).toThrow(/cannot be a NATS subject/);
    });
  });

  test("of a work queue is refused: nobody could come back to his place in it", async () => {
    await raw(server.url(), async (_, manager) => {
      await manager.streams.add({ name: "QUEUE", subjects: ["queue.events"], retention: "workqueue" });
    });
    await using({ url: server.url(), provision: true }, async (broker) => {
      await expect(receive(broker, "queue.events").take(1)).rejects.toThrow(/work queue/);
    });
  });

  test("starts again at the first that was not acknowledged, before anything newer, whoever died holding it", async () => {
    const topic = freshTopic();
    const events = many(30);
    const dead = nats({ url: server.url(), provision: true });
    await using({ url: server.url(), provision: true }, async (broker) => {
      await broker.provision([topic]);
      await broker.publish(outgoing(events.slice(0, 20), topic), never);
      const first = receive(dead, topic, { prefetch: 12 });
      const held = await first.take(12);
      for (const n of [0, 1, 2, 4, 5, 7]) await held[n]!.ack();
      await first.deliveries.return?.(); // its acknowledgements are in, and its deliveries stay with nobody
      await broker.publish(outgoing(events.slice(20), topic), never);
      // At once: nobody waits for what the dead one holds.
      const again = await within(15_000, "the rest", receive(broker, topic).take(27));
      expect(idsOf(again)).toEqual(ids(events.slice(3)));
    });
    await dead[Symbol.asyncDispose]();
  });

  test("taken over ends for the one before, and its late acknowledgements do no harm", async () => {
    const topic = freshTopic();
    const events = many(6);
    await using({ url: server.url(), provision: true }, (left) =>
      using({ url: server.url(), provision: true }, async (right) => {
        await left.provision([topic], ["shop"]);
        await left.publish(outgoing(events, topic), never);
        const before = receive(left, topic);
        const held = await before.take(6);
        await held[0]!.ack();
        const after = receive(right, topic);
        const taken = await after.take(5);
        await expect(within(10_000, "the end", before.deliveries.next())).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
        await within(3_000, "a late acknowledgement", held[5]!.ack());
        expect(idsOf(taken)).toEqual(ids(events.slice(1)));
        expect(await durables(topic)).toHaveLength(1);
      }),
    );
  });

  test("keeps its place when the server is killed", async () => {
    const topic = freshTopic();
    const events = many(40);
    await using({ url: server.url(), provision: true }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      await broker.publish(outgoing(events, topic), never);
      const first = receive(broker, topic);
      for (const delivery of await first.take(25)) await delivery.ack();
      await first.deliveries.return?.();
      // Once more, and nothing acknowledged: a durable that has delivered and not advanced.
      const second = receive(broker, topic);
      await second.take(3);
      await server.kill9();
      await expect(within(5_000, "the end", second.take(100))).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
      await server.start();
      const again = await receive(broker, topic).take(15);
      expect(idsOf(again).slice(-15)).toEqual(ids(events.slice(25)));
    });
  });

  test("behind a backlog reads all of it without an end, and goes on where one before it stopped", async () => {
    const topic = freshTopic();
    const events = many(3_000);
    await using({ url: server.url(), provision: true }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      await storeAll(broker, topic, events);
      const came: string[] = [];
      for (const upTo of [1_000, 3_000]) {
        const { take, deliveries } = receive(broker, topic, { prefetch: 100, bytes: 1_000_000 });
        while (came.length < upTo) {
          const [delivery] = await take(1);
          came.push(delivery!.envelope.id);
          await delivery!.ack();
        }
        await deliveries.return?.();
      }
      expect(came).toEqual(ids(events));
    });
  });

  test("finds its place among hundreds of others", async () => {
    const topic = freshTopic();
    const events = many(3);
    await using({ url: server.url(), provision: true }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      await broker.publish(outgoing(events, topic), never);
      const first = receive(broker, topic);
      await (await first.take(1))[0]!.ack();
      await first.deliveries.return?.();
      await raw(server.url(), async (_, manager) => {
        const name = await manager.streams.find(topic);
        for (let n = 0; n < 300; n++)
          await manager.consumers.add(name, { durable_name: `${n % 2 === 0 ? "a" : "z"}${n}`, ack_policy: "explicit" });
      });
      expect(idsOf(await receive(broker, topic).take(2))).toEqual(ids(events.slice(1)));
      expect((await durables(topic)).filter(({ name }) => name.startsWith("shop_"))).toHaveLength(1);
    });
  });

  test("a wildcard's stream gives each topic to its own readers only", async () => {
    await raw(server.url(), async (_, manager) => void (await manager.streams.add({ name: "WILD", subjects: ["wild.>"] })));
    const [one, two] = many(2);
    await using({ url: server.url(), provision: true }, async (broker) => {
      await broker.publish([...outgoing([one!], "wild.one"), ...outgoing([two!], "wild.two")], never);
      const { take, deliveries } = receive(broker, "wild.two");
      expect(idsOf(await take(1))).toEqual([two!.id]);
      await quiet(300, "another topic's event was delivered", deliveries.next());
    });
  });

  test("letters of two consumers about one event are kept, beside the event, in one stream", async () => {
    await raw(server.url(), async (_, manager) => void (await manager.streams.add({ name: "LETTERS", subjects: ["letters.>"] })));
    const envelope = sampleEvent();
    await using({ url: server.url() }, async (broker) => {
      await broker.publish(outgoing([envelope], "letters.events"), never);
      const letters = deadLetterTopic({ sink: broker });
      for (const consumer of ["left", "right"]) {
        await letters.park({ topic: "letters.events", consumer, envelope, error: "no", attempts: 5 }, never);
      }
    });
    expect(await storedIn(server.url(), "letters.events")).toHaveLength(1);
    const letters = await storedIn(server.url(), "letters.events.dead");
    expect(letters.map(({ headers }) => headers["waybill-dead-consumer"])).toEqual(["left", "right"]);
  });

  test("a small message that waits keeps nothing in memory of the large ones that came with it", async () => {
    const topic = freshTopic();
    const data = new Uint8Array(50_000);
    const pairs = many(200).map((small) => [small, sampleEvent({ data, contentType: "application/octet-stream" })]);
    await using({ url: server.url() }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      // A pair at a time: small ones of one publish would overtake the large ones that do not fit into its first write.
      for (const pair of pairs) await storeAll(broker, topic, pair);
      const { take, deliveries } = receive(broker, topic, { prefetch: 400 });
      const before = heldBytes();
      const waiting: Delivery[] = [];
      for (let n = 0; n < 400; n++) {
        const [delivery] = await take(1);
        if (delivery!.envelope.data.byteLength < data.byteLength) waiting.push(delivery!);
        else await delivery!.ack();
      }
      expect(waiting).toHaveLength(200);
      expect(heldBytes() - before).toBeLessThan(2_000_000);
      await deliveries.return?.();
    });
  });

  test("over a link that says nothing any more ends by itself, and so does closing", async () => {
    const topic = freshTopic();
    await using proxy = await startTcpProxy(server.port);
    await using({ url: `nats://127.0.0.1:${proxy.port}`, provision: true }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      const { deliveries } = receive(broker, topic);
      const next = deliveries.next();
      await quiet(200, "something came", next);
      proxy.fault("up", { hold: true });
      proxy.fault("down", { hold: true });
      await expect(within(12_000, "the end", next)).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
      await expect(broker.connect(never)).rejects.toThrow(/it said nothing within 3000 ms/);
      await within(6_000, "close", Promise.resolve(broker[Symbol.asyncDispose]()));
    });
    proxy.heal();
    await within(
      5_000,
      "the end of every socket",
      gone(() => proxy.connections === 0),
    );
  });
});

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** What all buffers have together that something still refers to. */
function heldBytes(): number {
  // Buffers that one collection finds unused may be freed, and no longer counted, only by the next.
  collect();
  collect();
  return process.memoryUsage().arrayBuffers;
}

async function gone(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 20));
}
