import { expect, test } from "vitest";
import { redis } from "../../src/brokers/redis/index.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { systemClock } from "../../src/core/clock.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { describeWith } from "../servers/available.ts";
import { startRedis } from "../servers/redis.ts";
import { fakeInbox } from "../subscriber/fakes.ts";
import { publish, topic } from "./redis.ts";

await describeWith("redis", "a redis server with a client-output-buffer-limit", () => {
  test("a failing aggregate with more pending entries than are read one at a time holds up no other aggregate", async () => {
    const server = await startRedis({ settings: { "client-output-buffer-limit": "normal 2097152 0 0" } });
    const broker = redis({ url: server.url() });
    await broker.provision([topic], ["shop"]);
    await publish(
      broker,
      Array.from({ length: 300 }, () => sampleEvent({ aggregateId: "failing" })),
    );
    const others = Array.from({ length: 300 }, (_, n) =>
      sampleEvent({ aggregateId: `other-${n}`, contentType: "application/octet-stream", data: Buffer.alloc(100_000, 97) }),
    );
    for (let n = 0; n < others.length; n += 10) await publish(broker, others.slice(n, n + 10));
    const inbox = fakeInbox(systemClock);
    const subscriber = createSubscriber({
      ...{ consumer: "shop", source: broker, inbox, topics: [topic], observe: false },
      handlers: {
        "*": (one, tx) => {
          if (one.aggregateId === "failing") throw new Error("no");
          tx.write(one.id);
        },
      },
    });
    try {
      await subscriber.start();
      await expect.poll(() => inbox.effects.length, { timeout: 20_000 }).toBe(others.length);
      expect(inbox.effects.toSorted()).toEqual(others.map(({ id }) => id).toSorted());
    } finally {
      await subscriber.stop();
      await broker[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    }
  }, 60_000);
});
