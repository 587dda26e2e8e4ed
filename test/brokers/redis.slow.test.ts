import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, test } from "vitest";
import { sinkSuite, type StoredMessage } from "../../src/conformance/sink.ts";
import { sourceSuite } from "../../src/conformance/source.ts";
import { redis } from "../../src/brokers/redis/index.ts";
import { describeWith, outside } from "../servers/available.ts";
import { startRedis, type RedisServer } from "../servers/redis.ts";
import { respAt } from "../support/resp.ts";
import { fresh, store, storedAt, using } from "./redis.ts";

await describeWith("redis", "redis", () => {
  let server: RedisServer;
  beforeAll(async () => void (server = await startRedis()));
  afterAll(() => server[Symbol.asyncDispose]());
  everySuite(() => fresh(server));
});

const away = outside("redis");
let made = 0;
if (away !== null)
  describe("redis at WAYBILL_TEST_REDIS_URL", () =>
    everySuite(async () => {
      const url = away.url();
      const run = `${randomUUID().slice(0, 8)}-${(made += 1)}`;
      const topics = [`order.${run}`, `invoice.${run}`] as const;
      await using(url, (broker) => broker.provision(topics));
      return { url, topics, stored: (of) => storedAt(url, of), close: async () => void (await respAt(url, ["DEL", ...topics])) };
    }));

interface Fresh {
  readonly url: string;
  readonly topics: readonly [string, string];
  stored(of: string): Promise<readonly StoredMessage[]>;
  close(): Promise<void>;
}

function everySuite(fresh: () => Promise<Fresh>): void {
  sinkSuite({
    test,
    patienceMs: 20_000,
    can: { missing: true },
    async create() {
      const { url, ...rest } = await fresh();
      return { sink: redis({ url }), missing: "nowhere", ...rest };
    },
  });

  sourceSuite({
    test,
    patienceMs: 20_000,
    can: { redeliverWithinMs: 0 },
    async create() {
      const { url, topics, close } = await fresh();
      const broker = redis({ url });
      return {
        topics,
        open: async () => redis({ url, provision: true }),
        store: (to, events) => store(broker, events, to),
        close: async () => {
          await broker[Symbol.asyncDispose]();
          await close();
        },
      };
    },
  });
}
