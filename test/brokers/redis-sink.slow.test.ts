import { chmodSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { redis, type Redis, type RedisOptions } from "../../src/brokers/redis/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import { describeWith } from "../servers/available.ts";
import { startRedis, type RedisServer } from "../servers/redis.ts";
import { resp } from "../support/resp.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { ask, fresh, many, never, publish, storedIn, topic } from "./redis.ts";

async function using<T>(options: RedisOptions, work: (broker: Redis) => Promise<T>): Promise<T> {
  const broker = redis(options);
  try {
    return await work(broker);
  } finally {
    await broker[Symbol.asyncDispose]();
  }
}

const saying = (text: RegExp): string => expect.stringMatching(text) as string;

await describeWith("redis", "publishing to redis", () => {
  let server: RedisServer;
  beforeAll(async () => void (server = await startRedis({ settings: { save: "3600 1", "repl-diskless-sync-delay": 0 } })));
  afterAll(() => server[Symbol.asyncDispose]());
  const command = (...args: readonly string[]) => resp(server.port, args);
  const set = (name: string, value: string | number) => command("CONFIG", "SET", name, String(value));

  test("a stream does not come into being by a message, unless `provision` is true", async () => {
    const { url, database } = await fresh(server);
    await using({ url }, async (broker) => {
      expect(await publish(broker, [sampleEvent()], "new")).toMatchObject([
        {
          status: "refused",
          blame: "destination",
          error: { code: "DESTINATION_UNAVAILABLE", message: saying(/no stream "new": provision it/) },
        },
      ]);
      await expect(broker.probe("new", never)).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
      expect(await ask(server.port, database, ["EXISTS", "new"])).toEqual([0]);
      await broker.provision(["new", "new"]);
      await broker.provision(["new"]);
      await broker.probe("new", never);
      expect(await ask(server.port, database, ["TYPE", "new"], ["XLEN", "new"], ["XINFO", "GROUPS", "new"])).toEqual(["stream", 0, []]);
      expect(await publish(broker, [sampleEvent()], "new")).toEqual([{ status: "stored" }]);
      await broker.provision(["new"]);
      expect(await ask(server.port, database, ["XLEN", "new"])).toEqual([1]);
      await expect(broker.provision([""])).rejects.toMatchObject({ code: "INVALID_OPTION" });
    });
    await using({ url, provision: true }, async (broker) => {
      await broker.probe("newer", never);
      expect(await publish(broker, [sampleEvent()], "newer")).toEqual([{ status: "stored" }]);
    });
  });

  test("the limit counts attributes and headers too, and the server's own where it is lower", async () => {
    const { url } = await fresh(server);
    const event = sampleEvent({ data: new Uint8Array(900), headers: { tenant: "x".repeat(200) } });
    await using({ url, maxBytes: 1_000 }, async (broker) => {
      expect(await publish(broker, [event])).toMatchObject([
        { status: "refused", blame: "event", retryable: false, error: { code: "MESSAGE_TOO_LARGE" } },
      ]);
    });
    await using({ url, maxBytes: 2_000 }, async (broker) => expect(await publish(broker, [event])).toEqual([{ status: "stored" }]));
    await set("proto-max-bulk-len", 1024 * 1024);
    try {
      await using({ url, maxBytes: 50_000_000 }, async (broker) => {
        const large = sampleEvent({ data: new Uint8Array(1024 * 1024) });
        expect(await publish(broker, [large])).toMatchObject([{ status: "refused", blame: "event" }]);
        expect(broker.can.maxBytes).toBe(1024 * 1024);
      });
    } finally {
      await set("proto-max-bulk-len", 536_870_912);
    }
  });

  test("more than one flight can hold is stored all the same", async () => {
    const { url, database } = await fresh(server);
    const events = Array.from({ length: 40 }, (_, i) => sampleEvent({ aggregateId: `order-${i % 20}`, data: new Uint8Array(900_000) }));
    await using({ url }, async (broker) => {
      expect(new Set((await publish(broker, events)).map(({ status }) => status))).toEqual(new Set(["stored"]));
    });
    expect(await ask(server.port, database, ["XLEN", topic], ["FLUSHDB"])).toEqual([40, "OK"]);
  });

  /** Each with how it is brought about and how it is ended. */
  const outages: readonly (readonly [word: RegExp, begin: () => Promise<unknown>, end: () => Promise<unknown>])[] = [
    [/OOM/, () => set("maxmemory", 1), () => set("maxmemory", 0)],
    [/NOREPLICAS/, () => set("min-replicas-to-write", 1), () => set("min-replicas-to-write", 0)],
    [/READONLY/, () => command("REPLICAOF", "127.0.0.1", "1"), () => command("REPLICAOF", "NO", "ONE")],
    [/NOAUTH/, () => set("requirepass", "secret"), () => resp(server.port, ["AUTH", "secret"], ["CONFIG", "SET", "requirepass", ""])],
    [/NOPERM/, () => command("ACL", "SETUSER", "default", "-xadd"), () => command("ACL", "SETUSER", "default", "+@all")],
    [
      /MISCONF/,
      async () => {
        chmodSync(server.folder, 0o500); // no new file, such as a snapshot, can be made
        await command("BGSAVE");
        await expect.poll(async () => String((await command("INFO", "persistence"))[0])).toMatch(/rdb_last_bgsave_status:err/);
      },
      async () => {
        chmodSync(server.folder, 0o755);
        await command("BGSAVE");
        await expect.poll(async () => String((await command("INFO", "persistence"))[0])).toMatch(/rdb_last_bgsave_status:ok/);
      },
    ],
    [
      /BUSY/,
      async () => {
        await set("busy-reply-threshold", 1);
        void command("EVAL", "while true do end", "0").catch(() => undefined);
        await expect.poll(async () => String((await command("GET", "x"))[0])).toMatch(/BUSY/);
      },
      async () => {
        await command("SCRIPT", "KILL");
        await set("busy-reply-threshold", 5_000);
      },
    ],
  ];
  test.each(outages)("%s is the destination's fault, and over when it is over", async (word, begin, end) => {
    const { url } = await fresh(server);
    await using({ url }, async (broker) => {
      expect(await publish(broker, [sampleEvent()])).toEqual([{ status: "stored" }]);
      await begin();
      try {
        if (String(word) === "/NOAUTH/") {
          // Those who are in stay in; whoever comes must say who they are.
          await using({ url }, async (late) => {
            expect(await publish(late, [sampleEvent()])).toMatchObject([
              { status: "refused", blame: "destination", error: { message: saying(word) } },
            ]);
          });
        } else {
          expect(await publish(broker, [sampleEvent(), sampleEvent()])).toMatchObject([
            { status: "refused", blame: "destination", retryable: true, error: { code: "DESTINATION_UNAVAILABLE", message: saying(word) } },
            { status: "skipped" },
          ]);
        }
      } finally {
        await end();
      }
      expect(await publish(broker, [sampleEvent()])).toEqual([{ status: "stored" }]);
    });
  });

  test("a key of another kind is the destination's fault", async () => {
    const { url, database } = await fresh(server);
    await ask(server.port, database, ["SET", "text", "x"]);
    await using({ url }, async (broker) => {
      expect(await publish(broker, [sampleEvent()], "text")).toMatchObject([
        { status: "refused", blame: "destination", error: { message: saying(/WRONGTYPE/) } },
      ]);
      await expect(broker.probe("text", never)).rejects.toMatchObject({ message: saying(/"text" holds a string, not a stream/) });
      await expect(broker.provision(["text"])).rejects.toMatchObject({ message: saying(/"text".*WRONGTYPE/) });
    });
  });

  test("a cluster's node that does not serve the slot is the destination's fault", async () => {
    await using cluster = await startRedis({ settings: { "cluster-enabled": "yes" } });
    await using({ url: cluster.url() }, async (broker) => {
      expect(await publish(broker, [sampleEvent()])).toMatchObject([
        { status: "refused", blame: "destination", error: { message: saying(/CLUSTERDOWN/) } },
      ]);
      await expect(broker.probe(topic, never)).rejects.toMatchObject({ message: saying(/CLUSTERDOWN/) });
    });
  });

  test("with `replicas`, stored means that they have it", async () => {
    const { url, database } = await fresh(server);
    await using({ url, replicas: 1, timeoutMs: 4_000 }, async (broker) => {
      expect(await publish(broker, [sampleEvent()])).toMatchObject([{ status: "unknown", error: { message: saying(/0 of 1 replicas/) } }]);
      await using replica = await startRedis();
      await resp(replica.port, ["REPLICAOF", "127.0.0.1", String(server.port)]);
      const reached = async () => (await resp(server.port, ["SET", "x", "1"], ["WAIT", "1", "100"]))[1];
      await expect.poll(reached, { timeout: 15_000 }).toBe(1);
      const events = many(20);
      expect(new Set((await publish(broker, events)).map(({ status }) => status))).toEqual(new Set(["stored"]));
      const copies = await storedIn(replica.port, database, topic);
      expect(copies.slice(1).map(({ attributes }) => attributes["id"])).toEqual(expect.arrayContaining(events.map(({ id }) => id)));
    });
  });

  test("a connection cut at any byte: what is said to be stored is, what is refused is not, and order holds", async () => {
    const { url, database } = await fresh(server);
    await using proxy = await startTcpProxy(server.port);
    const told = new Map<string, string>();
    for (let bytes = 0; bytes < 9_000; bytes += 397) {
      for (const [direction, cutAfter] of [
        ["up", bytes],
        ["down", Math.floor(bytes / 20)],
      ] as const) {
        await using({ url: url.replace(String(server.port), String(proxy.port)) }, async (broker) => {
          await broker.connect(never);
          const events = Array.from({ length: 12 }, (_, i) => sampleEvent({ aggregateId: `${direction}-${bytes}-${i % 3}` }));
          proxy.fault(direction, { cutAfter });
          const results = await within(5_000, "publish", publish(broker, events));
          proxy.heal();
          results.forEach(({ status }, i) => told.set(events[i]!.id, status));
        });
      }
    }
    const byKey = new Map<string, string[]>();
    for (const { key, attributes } of await storedIn(server.port, database, topic)) {
      byKey.set(key, [...(byKey.get(key) ?? []), attributes["id"]!]);
    }
    for (const ids of byKey.values()) expect(ids).toEqual([...new Set(ids)].sort());
    const stored = new Set([...byKey.values()].flat());
    for (const [id, status] of told) if (status !== "unknown") expect(stored.has(id), status).toBe(status === "stored");
    expect(new Set(told.values())).toEqual(new Set(["stored", "unknown", "skipped", "refused"]));
  });
});
