import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { partitionOf } from "../../src/brokers/kafka/reading/partition.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import type { Envelope } from "../../src/core/event.ts";
import { createSubscriber } from "../../src/index.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { freshPath } from "./files.ts";
import { freshTopics, never, publish } from "./kafka.ts";
import { pause } from "./kit/changes.ts";

const eventually = <T>(look: () => T) => expect.poll(look, { timeout: 30_000, interval: 20 });

await describeWith("kafka", "kafka: a partition that moves to another process", () => {
  let server: KafkaServer;
  beforeAll(async () => void (server = await startKafka()));
  afterAll(() => server[Symbol.asyncDispose]());

  const open = () => {
    const broker = kafka({ url: server.url(), timeoutMs: 10_000, sessionMs: 6_000 });
    onTestFinished(() => broker[Symbol.asyncDispose]());
    return broker;
  };
  /** One event of an aggregate that lies in this partition of two. */
  const inPartition = (index: number): Envelope =>
    sampleEvent({ aggregateId: ["a", "b", "c", "d"].find((id) => partitionOf(Buffer.from(id), 2) === index)! });

  test("its deliveries are told so and released, and those of the other partition go on", async () => {
    const [topic] = await freshTopics(server.url(), 2);
    await publish(open(), [inPartition(0), inPartition(1)], topic);
    const receive = () => {
      const deliveries = open().receive({ consumer: "told", topics: [topic], prefetch: 2 }, never);
      return deliveries[Symbol.asyncIterator]();
    };
    const take = async (from: AsyncIterator<Delivery>) => (await within(30_000, "a delivery", from.next())).value as Delivery;
    const old = receive();
    const held = [await take(old), await take(old)];
    expect(held.map(({ assignment }) => assignment?.ours())).toEqual([true, true]);
    const coming = take(old);
    const moved = await take(receive());
    const lost = held.find(({ envelope }) => envelope.id === moved.envelope.id)!;
    const kept = held.find((one) => one !== lost)!;
    await eventually(() => lost.assignment!.ended.aborted).toBe(true);
    expect([lost, kept].map(({ assignment }) => assignment!.ours())).toEqual([false, true]);
    // Neither was acknowledged: there is room since the lost one does not count any more.
    const next = sampleEvent({ aggregateId: kept.envelope.aggregateId });
    await publish(open(), [next], topic);
    expect((await coming).envelope.id).toBe(next.id);
  });

  test("a failed event that waits for its next attempt is left to the new owner: its follower does not overtake it, and no letter tells of it", async () => {
    const [topic] = await freshTopics(server.url(), 2);
    const pairs = [0, 1].map((index) => [inPartition(index), inPartition(index)] as const);
    await publish(open(), pairs.flat(), topic);
    const store = sqlite({ path: freshPath() });
    onTestFinished(() => store[Symbol.asyncDispose]());
    await store.schema.migrate();
    const firsts = pairs.map(([{ id }]) => id);
    const log: string[] = [];
    let healed = false;
    const start = async (name: string) => {
      const service = createSubscriber({
        ...{ consumer: "order", source: open(), inbox: store, topics: [topic], retry: { delaysMs: [100, 15_000, 600_000], jitter: 0 } },
        observe: (event) => void (event.type === "subscriber.died" && log.push(`${name} parks ${event.id}`)),
        handlers: {
          "*": ({ id }: { id: string }) => {
            log.push(`${name} tries ${id}`);
            if (firsts.includes(id) && !(healed && name === "first")) throw new Error("not yet");
          },
        },
      });
      await service.start();
      onTestFinished(() => service.stop());
    };
    await start("first");
    await eventually(() => log.length).toBe(4);
    healed = true;
    await start("second");
    await eventually(() => log.filter((entry) => entry.startsWith("second")).length).toBe(1);
    const moved = pairs.find(([{ id }]) => log.includes(`second tries ${id}`))!;
    const kept = pairs.find((pair) => pair !== moved)!;
    await eventually(() => log).toContain(`first tries ${kept[1].id}`);
    await pause(2_000); // Both rested for the same time, from almost the same moment.
    const [event] = moved.map(({ id }) => id);
    expect(log.filter((entry) => moved.some(({ id }) => entry.endsWith(id)))).toEqual([
      ...[`first tries ${event}`, `first tries ${event}`, `second tries ${event}`],
    ]);
  });
});
