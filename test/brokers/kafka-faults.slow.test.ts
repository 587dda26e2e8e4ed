import { ProduceAcks, Producer } from "@platformatic/kafka";
import { expect, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { partitionOf } from "../../src/brokers/kafka/partition.ts";
import { freshTopics, many, publish, subject } from "./kafka.ts";
import { changeTopic, makeTopic, readTopic } from "./kafka-raw.ts";
import { pause } from "./kit/changes.ts";
import { faultSuite } from "./kit/faults.ts";

await describeWith("kafka", "kafka: whatever happens to the server, nothing is lost or reordered", () => {
  const { server } = faultSuite(subject);

  test("a batch that follows one whose answer was lost is stored, and not taken for its copy", async () => {
    const [topic] = await freshTopics(server().url(), 1);
    await using broker = subject.open(server().url());
    await publish(broker, many(3), topic);
    server().freeze();
    const unheard = await publish(broker, many(3), topic).finally(() => server().thaw());
    expect(unheard.map(({ status }) => status)).toEqual(["unknown", "unknown", "unknown"]);
    const next = many(3);
    expect((await publish(broker, next, topic)).map(({ status }) => status)).toEqual(["stored", "stored", "stored"]);
    const ids = (await readTopic(server().url(), topic)).map(({ attributes }) => attributes["id"]);
    expect(ids).toEqual(expect.arrayContaining(next.map(({ id }) => id)));
  });

  test("a batch that follows one of which a part was refused is stored, whatever its partition", async () => {
    const topic = `order-${process.pid}-parts.events`;
    await makeTopic(server().url(), topic, 2, { "max.message.bytes": "20000" });
    // A limit that only the server knows, as when it was lowered a moment ago.
    await using broker = subject.open(server().url());
    const inPartition = (n: number) => many(8, 8).find(({ aggregateId }) => partitionOf(Buffer.from(aggregateId), 2) === n)!;
    await publish(broker, [inPartition(0), inPartition(1)], topic);
    await changeTopic(server().url(), topic, "max.message.bytes", "10000");
    const large = { ...inPartition(0), data: Buffer.alloc(12_000, 65) };
    const first = await publish(broker, [large, inPartition(1)], topic);
    expect(first.map(({ status }) => status)).toEqual(["refused", "stored"]);
    const next = [inPartition(1), inPartition(0)];
    expect((await publish(broker, next, topic)).map(({ status }) => status)).toEqual(["stored", "stored"]);
    const ids = (await readTopic(server().url(), topic)).map(({ attributes }) => attributes["id"]);
    expect(ids).toEqual(expect.arrayContaining(next.map(({ id }) => id)));
  });

  test("killed, it has what it told a bare client: a loss would be the server's own", async () => {
    const [topic] = await freshTopics(server().url(), 1);
    const client = new Producer({ clientId: "control", bootstrapBrokers: [`127.0.0.1:${server().port}`], retries: 0, timeout: 2_000 });
    let told = 0;
    let on = true;
    const writing = (async () => {
      while (on) {
        await client.send({ acks: ProduceAcks.ALL, messages: [{ topic, key: Buffer.from("k"), value: Buffer.from(String(told)) }] });
        told += 1;
      }
    })().catch(() => undefined);
    await expect.poll(() => told, { timeout: 20_000 }).toBeGreaterThan(100);
    await server().kill9();
    on = false;
    await Promise.race([writing, pause(5_000)]);
    await Promise.resolve(client.close(true)).catch(() => undefined);
    await server().start();
    expect((await readTopic(server().url(), topic)).length).toBeGreaterThanOrEqual(told);
  });
});
