import { expect, test } from "vitest";
import { redis } from "../../src/brokers/redis/index.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { memory } from "../../src/stores/memory/index.ts";
import { describeWith } from "../servers/available.ts";
import { startRedis } from "../servers/redis.ts";
import { resp, type Resp } from "../support/resp.ts";
import { byAggregate, changeOf, firsts, pause } from "./kit/changes.ts";
import { faultSuite } from "./kit/faults.ts";
import { storedIn, subject, topic } from "./redis.ts";

await describeWith("redis", "redis: whatever happens to the server, nothing is lost or reordered", () => {
  const { server, scene: opened } = faultSuite(subject);

  test("killed, it has what it told a bare client: a loss would be the server's own", async () => {
    const told: Resp[] = [];
    for (let round = 0; round < 3; round++) {
      let on = true;
      const writing = (async () => {
        while (on) told.push(...(await resp(server().port, ...Array.from({ length: 20 }, () => ["XADD", "control", "*", "n", "1"]))));
      })().catch(() => undefined);
      await pause(300);
      await server().kill9();
      on = false;
      await writing;
      await server().start();
    }
    const [entries] = await resp(server().port, ["XRANGE", "control", "-", "+"]);
    const ids = new Set((entries as readonly (readonly [string])[]).map(([id]) => id));
    expect(told.length).toBeGreaterThan(100);
    expect(told.filter((id) => !ids.has(id as string))).toEqual([]);
  });

  test("out of memory, and then not", async () => {
    await using scene = await opened();
    const load = scene.load();
    await scene.warm(50);
    await resp(server().port, ["CONFIG", "SET", "maxmemory", "1"]);
    await scene.seen(/OOM/);
    await pause(1_000);
    await resp(server().port, ["CONFIG", "SET", "maxmemory", "0"]);
    await load.end();
    await scene.done();
    await scene.judge(0);
  });

  test("its group removed under load: everything comes again, and each effect is there once", async () => {
    await using scene = await opened();
    const load = scene.load();
    await scene.warm(200);
    await resp(server().port, ["XGROUP", "DESTROY", scene.topic, "shop"]);
    const told = (): boolean =>
      scene.events.some((event) => event.type === "subscriber.trouble" && /no group .*provision/.test(event.error));
    await expect.poll(told, { timeout: 20_000 }).toBe(true);
    await subject.provision(server().url(), [scene.topic], ["shop"]);
    await load.end();
    await scene.done();
    await scene.judge(0);
  });

  test("an event that ends its connection, since the server does not tell its limit, is found out in the end", async () => {
    await using small = await startRedis({ settings: { "proto-max-bulk-len": "1mb" } });
    await resp(small.port, ["ACL", "SETUSER", "default", "-config"]);
    await resp(small.port, ["XGROUP", "CREATE", topic, "none", "$", "MKSTREAM"]);
    const store = memory();
    await store.schema.migrate();
    const outbox = createOutbox({ store, maxPayloadBytes: 3_000_000 });
    const broker = redis({ url: small.url(), maxBytes: 5_000_000, timeoutMs: 1_000 });
    const times = { pollIntervalMs: 10, leaseMs: 4_000, probeMs: { first: 20, last: 50 }, retry: { delaysMs: [] } };
    const relay = createRelay({ store, sink: broker, ...times });
    await store.transactor.transaction(store.db, async (tx) => {
      for (let n = 1; n <= 30; n++) {
        const text = n === 12 ? "x".repeat(2_000_000) : "";
        await outbox.add(tx, { aggregateType: "Order", aggregateId: `order-${n % 3}`, type: "Changed", payload: { n, text } });
      }
    });
    await relay.start();
    try {
      const states = async () => (await store.operator.status()).states;
      await expect.poll(states, { timeout: 60_000, interval: 100 }).toMatchObject({ PUBLISHED: 23, DEAD: 1, BLOCKED: 6 });
      expect((await store.operator.status()).breakers).toEqual([]);
    } finally {
      await relay.stop();
      await broker[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
    }
    const changes = (await storedIn(small.port, "0", topic)).map(changeOf);
    const numbers = Object.values(byAggregate(firsts(changes)));
    for (const those of numbers) expect(those).toEqual([...those].sort((a, b) => a - b));
  });
});
