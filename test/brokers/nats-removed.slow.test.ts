import { afterAll, beforeAll, expect, test } from "vitest";
import { nats, type Nats } from "../../src/brokers/nats/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import type { NatsServer } from "../servers/nats.ts";
import { describeEachNats, freshTopic, never, outgoing, raw, using } from "./nats.ts";

await describeEachNats("nats: what a stream removes while no receiver is on", (start) => {
  let server: NatsServer;
  beforeAll(async () => void (server = await start()));
  afterAll(() => server[Symbol.asyncDispose]());

  const many = (count: number) => Array.from({ length: count }, (_, n) => sampleEvent({ aggregateId: `order-${n}` }));
  /** A topic with twelve events. */
  async function filled(limits: object = {}): Promise<string> {
    const topic = freshTopic();
    await raw(server.url(), async (_, manager) => {
      await manager.streams.add({ name: topic.replaceAll(".", "_"), subjects: [topic], ...limits });
    });
    await using({ url: server.url() }, async (broker) => {
      await broker.provision([topic], ["shop"]);
      await broker.publish(outgoing(many(12), topic), never);
    });
    return topic;
  }

  function receive(broker: Nats, topic: string) {
    const missed: (number | null)[] = [];
    const told = (_: string, messages: number | null): void => void missed.push(messages);
    const deliveries = broker.receive({ consumer: "shop", topics: [topic], prefetch: 9, missed: told }, never)[Symbol.asyncIterator]();
    const take = async (): Promise<Delivery> => (await within(8_000, "a delivery", deliveries.next())).value as Delivery;
    return { missed, take, end: () => deliveries.return?.() };
  }

  /** Takes nine and acknowledges all of them but the fourth. */
  async function takeNine(take: () => Promise<Delivery>): Promise<void> {
    for (let number = 1; number <= 9; number++) {
      const delivery = await take();
      if (number !== 4) await delivery.ack();
    }
  }

  /** Reads the oldest that is left, and returns what was told until then. */
  const toldTo = (topic: string): Promise<readonly (number | null)[]> =>
    using({ url: server.url() }, async (broker) => {
      const { take, missed, end } = receive(broker, topic);
      await (await take()).ack();
      await end();
      return missed;
    });

  test("by its limits, is told with its number", async () => {
    const topic = await filled({ max_msgs: 12, discard: "old" });
    await using({ url: server.url() }, async (broker) => {
      const { take, end } = receive(broker, topic);
      await takeNine(take);
      await end();
      await broker.publish(outgoing(many(11), topic), never);
    });
    // 4, 10 and 11. A server before 2.10 counts 4 as acknowledged, and keeps no note of ours.
    expect(await toldTo(topic)).toEqual([server.version.startsWith("2.9.") ? 2 : 3]);
    expect(await toldTo(topic), "once").toEqual([]);
  });

  test("by hand after a process has died, is told, with a number that is not too small", async () => {
    const topic = await filled();
    const dead = nats({ url: server.url() });
    await takeNine(receive(dead, topic).take);
    await raw(server.url(), async (_, manager) => {
      const stream = await manager.streams.find(topic);
      await expect.poll(async () => (await manager.consumers.list(stream).next())[0]!.num_ack_pending, { timeout: 10_000 }).toBe(1);
      await manager.streams.purge(stream, { keep: 1 });
    });
    const [told, ...more] = await toldTo(topic);
    expect(more).toEqual([]);
    expect(told).toBeGreaterThanOrEqual(3);
    expect(told).toBeLessThanOrEqual(11);
    await using({ url: server.url() }, (broker) => broker.publish(outgoing(many(1), topic), never));
    expect(await toldTo(topic), "once").toEqual([]);
    await dead[Symbol.asyncDispose]();
  });

  test("after all of it was acknowledged, is not told", async () => {
    const topic = await filled();
    await using({ url: server.url() }, async (broker) => {
      const { take, end } = receive(broker, topic);
      for (let number = 1; number <= 12; number++) await (await take()).ack();
      await end();
      await raw(server.url(), async (_, manager) => void (await manager.streams.purge(await manager.streams.find(topic))));
      await broker.publish(outgoing(many(1), topic), never);
    });
    expect(await toldTo(topic)).toEqual([]);
  });
});
