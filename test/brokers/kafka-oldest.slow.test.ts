import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { batchOf, eventHeaders } from "./kafka-batch.ts";
import { deleteRecords, makeTopic, produceRaw } from "./kafka-raw.ts";
import { never } from "./kafka.ts";

const day = 86_400_000;

await describeWith("kafka", "kafka: the oldest record that may come again, for which an inbox keeps its marks", () => {
  let server: KafkaServer;
  beforeAll(async () => void (server = await startKafka()));
  afterAll(() => server[Symbol.asyncDispose]());

  let made = 0;
  const setup = async () => {
    const [url, topic] = [server.url(), `kept-${(made += 1)}.events`];
    // In one segment: until the broker has removed one that lies before the log's start, it finds no time behind it.
    await makeTopic(url, topic, 2, { "retention.ms": "-1", "segment.ms": String(365 * day) });
    const broker = kafka({ url, timeoutMs: 10_000 });
    onTestFinished(() => broker[Symbol.asyncDispose]());
    return {
      produce: (partition: number, id: string, at: number) =>
        produceRaw(url, topic, partition, batchOf([{ headers: eventHeaders(id) }], { at })),
      remove: (partition: number, before: bigint) => deleteRecords(url, topic, partition, before),
      oldest: async () => (await broker.oldest!(topic, never, "shop"))?.getTime() ?? null,
    };
  };

  test("it is the first of all partitions that retention has left, read or not; none in a topic that is empty", async () => {
    const { produce, remove, oldest } = await setup();
    expect(await oldest()).toBeNull();
    const now = Date.now();
    await produce(0, "new", now - day);
    await produce(1, "old", now - 90 * day);
    await produce(1, "newer", now - 40 * day);
    expect(await oldest()).toBe(now - 90 * day);
    await remove(1, 1n);
    expect(await oldest()).toBe(now - 40 * day);
    await remove(1, 2n);
    expect(await oldest()).toBe(now - day);
    await remove(0, 1n);
    expect(await oldest()).toBeNull();
  });

  test("a record without a time may be of any age: all marks are kept", async () => {
    const { produce, remove, oldest } = await setup();
    await produce(0, "timeless", -1);
    expect(await oldest()).toBe(0);
    const now = Date.now();
    await produce(0, "new", now);
    expect(await oldest()).toBe(0);
    await remove(0, 1n);
    expect(await oldest()).toBe(now);
  });

  test("a topic that is not there is no topic without records", async () => {
    await using broker = kafka({ url: server.url(), timeoutMs: 10_000 });
    await expect(broker.oldest!("nowhere.events", never, "shop")).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
  });
});
