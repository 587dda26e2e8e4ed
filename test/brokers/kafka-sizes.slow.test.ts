import { afterAll, beforeAll, expect, test } from "vitest";
import { BatchWriter } from "../../src/brokers/kafka/writing/batch-writer.ts";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { publish } from "./kafka.ts";
import { changeTopic, makeTopic, readTopic } from "./kafka-raw.ts";

await describeWith("kafka", "kafka: how large a message is", () => {
  let server: KafkaServer;
  beforeAll(async () => void (server = await startKafka()));
  afterAll(() => server[Symbol.asyncDispose]());

  /** As the broker counts it: in a batch of its own. */
  const sizeOf = (event: ReturnType<typeof sampleEvent>): number => {
    const writer = new BatchWriter();
    writer.begin();
    writer.add(event, "/test");
    return writer.aloneBytes;
  };

  test.each([0, 5_000, 20_000])("is counted as the broker counts it, to the byte (%i bytes of data)", async (length) => {
    const event = sampleEvent({ data: new Uint8Array(length), headers: { tenant: "Zoë" } });
    const [bytes, topic] = [sizeOf(event), `sizes-${length}.events`];
    await makeTopic(server.url(), topic, 1, { "max.message.bytes": String(bytes) });
    await using broker = kafka({ url: server.url() });
    expect(await publish(broker, [event], topic)).toEqual([{ status: "stored" }]);
    // The broker's limit is now lower, and this broker's own knowledge of it is old.
    await changeTopic(server.url(), topic, "max.message.bytes", String(bytes - 1));
    const [late] = await publish(broker, [event], topic);
    expect(late).toMatchObject({
      status: "refused",
      blame: "event",
      error: { message: expect.stringContaining("MESSAGE_TOO_LARGE") as string },
    });
    await using informed = kafka({ url: server.url() });
    const [refused] = await publish(informed, [event], topic);
    expect(refused).toMatchObject({
      error: { code: "MESSAGE_TOO_LARGE", message: expect.stringContaining(`takes ${bytes} bytes`) as string },
    });
    expect(await readTopic(server.url(), topic)).toHaveLength(1);
  });
});
