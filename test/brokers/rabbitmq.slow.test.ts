import { createServer, type AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { sinkSuite } from "../../src/conformance/sink.ts";
import { sourceSuite } from "../../src/conformance/source.ts";
import { outside } from "../servers/available.ts";
import { startRabbitmq, type RabbitmqServer } from "../servers/rabbitmq.ts";
import { storeAll } from "./kit/store.ts";
import { describeOn, freshTopic, outgoing, provision, storedIn } from "./rabbitmq.ts";

/** Those that the suite receives as. */
const consumers = ["suite", "both", "single", "left", "right", "prefetch-9", "prefetch-1"];

await describeOn(["rabbitmq", "rabbitmq4"], "rabbitmq", (on) => {
  let server: RabbitmqServer;
  beforeAll(async () => void (server = await startRabbitmq({ ...on, management: true })));
  afterAll(() => server[Symbol.asyncDispose]());
  everySuite(() => ({ url: server.url(), management: server.management }), true);

  test("a management plugin that is away, or says nothing, keeps no probe from seeing that the broker is there", async () => {
    const topic = freshTopic();
    await provision(server.url(), [topic]);
    const silent = createServer();
    await new Promise<void>((listening) => silent.listen(0, "127.0.0.1", listening));
    try {
      const ports = [(silent.address() as AddressInfo).port, 1];
      for (const port of ports) {
        await using broker = rabbitmq({ url: server.url(), management: `http://guest:guest@127.0.0.1:${port}` });
        await broker.probe(topic, AbortSignal.timeout(1_000));
        await expect(broker.probe(topic, AbortSignal.abort())).rejects.toThrow(/was called off/);
      }
    } finally {
      silent.close();
    }
  });
});

/** Its user may make exchanges and queues, which stay there. */
const away = outside("rabbitmq");
if (away !== null) describe("rabbitmq at WAYBILL_TEST_RABBITMQ_URL", () => everySuite(() => ({ url: away.url() }), false));

function everySuite(place: () => { readonly url: string; readonly management?: string }, missing: boolean): void {
  sinkSuite({
    test,
    patienceMs: 20_000,
    // AMQP does not tell whether a queue is bound, and the management plugin does; a publish finds out without it.
    can: { missing },
    async create() {
      const topics = [freshTopic(), freshTopic("invoice")] as const;
      const { url } = place();
      await provision(url, topics);
      return {
        sink: rabbitmq(place()),
        topics,
        missing: "nowhere",
        stored: (topic) => storedIn(url, topic),
        close: async () => undefined,
      };
    },
  });

  sourceSuite({
    test,
    patienceMs: 20_000,
    can: { redeliverWithinMs: 0 },
    async create() {
      const topics = [freshTopic(), freshTopic("invoice")] as const;
      const { url } = place();
      const broker = rabbitmq({ url });
      await broker.provision(topics, consumers);
      return {
        topics,
        open: async () => rabbitmq({ url }),
        store: (topic, events) => storeAll(broker, outgoing(events, topic)),
        close: async () => broker[Symbol.asyncDispose](),
      };
    },
  });
}
