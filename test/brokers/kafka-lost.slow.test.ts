import { afterAll, beforeAll, expect, test } from "vitest";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { partitionOf } from "../../src/brokers/kafka/reading/partition.ts";
import type { Envelope } from "../../src/core/event.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { freshTopics, many, publish, subject } from "./kafka.ts";
import { changeTopic, makeTopic, readTopic } from "./kafka-raw.ts";
import { startKafkaForger } from "../support/kafka-forger.ts";

await describeWith("kafka", "kafka: after a batch that came there in part, or nobody knows how", () => {
  let server: KafkaServer;
  beforeAll(async () => void (server = await startKafka()));
  afterAll(() => server[Symbol.asyncDispose]());
  const reads = async (topic: string, events: readonly Envelope[]): Promise<void> =>
    expect((await readTopic(server.url(), topic)).map(({ attributes }) => attributes["id"])).toEqual(
      expect.arrayContaining(events.map(({ id }) => id)),
    );

  test("a batch that follows one whose answer was lost is stored, and not taken for its copy", async () => {
    const [topic] = await freshTopics(server.url(), 1);
    await using broker = subject.open(server.url());
    const stored = (events: Envelope[]): Promise<void> =>
      expect
        .poll(async () => (await publish(broker, events, topic)).map(({ status }) => status), { timeout: 20_000 })
        .toEqual(["stored", "stored", "stored"]);
    await stored(many(3));
    server.freeze();
    const unheard = await publish(broker, many(3), topic).finally(() => server.thaw());
    expect(unheard.map(({ status }) => status)).toEqual(["unknown", "unknown", "unknown"]);
    const next = many(3);
    // The server may have missed its own heartbeat meanwhile: then it takes nothing until its controller has it back.
    await stored(next);
    await reads(topic, next);
  });

  test("a batch that follows one of which a part was refused is stored, whatever its partition", async () => {
    const topic = `order-${process.pid}-parts.events`;
    await makeTopic(server.url(), topic, 2, { "max.message.bytes": "20000" });
    // A limit that only the server knows, as when it was lowered a moment ago.
    await using broker = kafka({ url: server.url(), timeoutMs: 10_000 });
    const inPartition = (n: number) => many(8, 8).find(({ aggregateId }) => partitionOf(Buffer.from(aggregateId), 2) === n)!;
    await publish(broker, [inPartition(0), inPartition(1)], topic);
    await changeTopic(server.url(), topic, "max.message.bytes", "10000");
    const large = { ...inPartition(0), data: Buffer.alloc(12_000, 65) };
    const first = await publish(broker, [large, inPartition(1)], topic);
    expect(first.map(({ status }) => status)).toEqual(["refused", "stored"]);
    const next = [inPartition(1), inPartition(0)];
    expect((await publish(broker, next, topic)).map(({ status }) => status)).toEqual(["stored", "stored"]);
    await reads(topic, next);
  });
});

await describeWith("kafka", "kafka: a broker that takes connections and says nothing any more, as when it is frozen", () => {
  let server: KafkaServer;
  beforeAll(async () => void (server = await startKafka()));
  afterAll(() => server[Symbol.asyncDispose]());

  test("is asked no second time while another broker of the URL answers, though it is the first there", async () => {
    const [topic] = await freshTopics(server.url(), 1);
    await using frozen = await startKafkaForger(server.port);
    await using other = await startKafkaForger(server.port);
    await using broker = kafka({ url: `kafka://127.0.0.1:${frozen.port},127.0.0.1:${other.port}`, timeoutMs: 5_000 });
    const never = new AbortController().signal;
    await broker.probe(topic, never);
    const [versions, metadata] = [18, 3];
    for (const request of [versions, metadata]) frozen.forge(request, () => Buffer.alloc(0));
    await expect(broker.probe(topic, never)).rejects.toThrow(`127.0.0.1:${frozen.port} did not answer`);
    expect(frozen.forged).toBe(1);
    await broker.probe(topic, never);
    expect(frozen.forged).toBe(1);
    // The other one stops to answer, and this one has begun again.
    for (const request of [versions, metadata]) {
      frozen.forge(request, null);
      other.forge(request, () => Buffer.alloc(0));
    }
    await expect(broker.probe(topic, never)).rejects.toThrow(`127.0.0.1:${other.port} did not answer`);
    await broker.probe(topic, never);
    expect(other.forged).toBe(1);
  });
});
