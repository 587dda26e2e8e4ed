import { afterAll, beforeAll, describe, test } from "vitest";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { sinkSuite } from "../../src/conformance/sink.ts";
import { sourceSuite } from "../../src/conformance/source.ts";
import { describeWith, outside } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { freshTopics, publish } from "./kafka.ts";
import { readTopic } from "./kafka-raw.ts";

await describeWith("kafka", "kafka", () => {
  let server: KafkaServer;
  beforeAll(async () => void (server = await startKafka()));
  afterAll(() => server[Symbol.asyncDispose]());
  everySuite(() => server.url());
});

const away = outside("kafka");
if (away !== null) describe("kafka at WAYBILL_TEST_KAFKA_URL", () => everySuite(() => away.url()));

function everySuite(url: () => string): void {
  sinkSuite({
    test,
    patienceMs: 20_000,
    can: { missing: true },
    async create() {
      const topics = await freshTopics(url());
      return {
        sink: kafka({ url: url() }),
        topics,
        missing: "nowhere",
        stored: (topic) => readTopic(url(), topic),
        close: async () => undefined,
      };
    },
  });

  sourceSuite({
    test,
    patienceMs: 20_000,
    can: { redeliverWithinMs: 0 },
    async create() {
      const topics = await freshTopics(url());
      const broker = kafka({ url: url() });
      return {
        topics,
        open: async () => kafka({ url: url() }),
        store: async (topic, events) => void (await publish(broker, events, topic)),
        close: async () => broker[Symbol.asyncDispose](),
      };
    },
  });
}
