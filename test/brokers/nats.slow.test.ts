import { afterAll, beforeAll, describe, test } from "vitest";
import { nats } from "../../src/brokers/nats/index.ts";
import { sinkSuite } from "../../src/conformance/sink.ts";
import { sourceSuite } from "../../src/conformance/source.ts";
import { outside } from "../servers/available.ts";
import type { NatsServer } from "../servers/nats.ts";
import { storeAll } from "./kit/store.ts";
import { describeEachNats, freshTopic, outgoing, storedIn, using } from "./nats.ts";

await describeEachNats("nats", (start) => {
  let server: NatsServer;
  beforeAll(async () => void (server = await start()));
  afterAll(() => server[Symbol.asyncDispose]());
  everySuite(() => server.url());
});

const away = outside("nats");
if (away !== null) describe("nats at WAYBILL_TEST_NATS_URL", () => everySuite(() => away.url()));

function everySuite(url: () => string): void {
  sinkSuite({
    test,
    patienceMs: 20_000,
    can: { missing: true },
    async create() {
      const topics = [freshTopic(), freshTopic("invoice")] as const;
      await using({ url: url() }, (broker) => broker.provision(topics));
      return {
        sink: nats({ url: url() }),
        topics,
        missing: "nowhere",
        stored: (topic) => storedIn(url(), topic),
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
      const broker = nats({ url: url(), provision: true });
      await broker.provision(topics);
      return {
        topics,
        open: async () => nats({ url: url(), provision: true }),
        store: (topic, events) => storeAll(broker, outgoing(events, topic)),
        close: async () => broker[Symbol.asyncDispose](),
      };
    },
  });
}
