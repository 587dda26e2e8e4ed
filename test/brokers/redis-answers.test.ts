import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { redis, type RedisOptions } from "../../src/brokers/redis/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import { scriptedRedis, type ScriptedRedis } from "../support/resp.ts";
import { never, outgoing, publish, topic } from "./redis.ts";

const limit = (bytes: number): string => `*2\r\n$18\r\nproto-max-bulk-len\r\n$${String(bytes).length}\r\n${bytes}`;

/** What the server says to a greeting; a test says the rest. */
const answers =
  (rest: (command: readonly string[]) => string | null) =>
  (command: readonly string[]): string | null => {
    if (command[0] === "CONFIG") return limit(536_870_912);
    return rest(command);
  };

async function using(
  server: ScriptedRedis,
  options: Partial<RedisOptions>,
  work: (broker: ReturnType<typeof redis>) => Promise<void>,
): Promise<void> {
  const broker = redis({ url: `redis://127.0.0.1:${server.port}`, ...options });
  try {
    await work(broker);
  } finally {
    await broker[Symbol.asyncDispose]();
  }
}

const valueOf = (command: readonly string[], name: string): string | undefined => command[command.indexOf(name) + 1];
const idsSent = (server: ScriptedRedis): unknown[] =>
  server.commands.filter(([name]) => name === "XADD").map((command) => valueOf(command, "ce_id"));
const saying = (text: RegExp): string => expect.stringMatching(text) as string;
const event = (aggregateId: string) => sampleEvent({ aggregateId });

describe("redis answers", () => {
  test.each([
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "READONLY You can't write against a read only replica.",
    "LOADING Redis is loading the dataset in memory",
    "NOAUTH Authentication required.",
    "NOPERM this user has no permissions to run the 'xadd' command",
    "NOREPLICAS Not enough good replicas to write.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CLUSTERDOWN The cluster is down",
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "BUSY Redis is busy running a script.",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
  ])("%s: the destination is to blame, the aggregate waits, and others are stored", async (refusal) => {
    const [first, second, other, third] = [event("a"), event("a"), event("b"), event("a")];
    await using server = await scriptedRedis(answers((command) => (valueOf(command, "ce_id") === first.id ? `-${refusal}` : "$3\r\n1-1")));
    await using(server, {}, async (broker) => {
      const results = await publish(broker, [first, second, other, third]);
      expect(results).toMatchObject([
        { status: "refused", blame: "destination", retryable: true, error: { code: "DESTINATION_UNAVAILABLE" } },
        { status: "skipped" },
        { status: "stored" },
        { status: "skipped" },
      ]);
      expect(idsSent(server)).toEqual([first.id, other.id]);
    });
  });

  test("the next event of an aggregate is sent only when the one before is answered", async () => {
    const open: string[] = [];
    let most = 0;
    const [events, server] = await (async () => {
      const all = Array.from({ length: 60 }, (_, i) => event(`order-${i % 4}`));
      return [all, await scriptedRedis(answers((command) => (open.push(valueOf(command, "ce_id")!), null)))] as const;
    })();
    await using _ = server;
    const controller = new AbortController();
    await using(server, {}, async (broker) => {
      const publishing = broker.publish(outgoing(events), controller.signal);
      await expect.poll(() => open.length).toBeGreaterThan(0);
      await new Promise((resolve) => setTimeout(resolve, 50));
      most = open.length;
      controller.abort();
      const results = await within(1_000, "publish after an abort", publishing);
      expect(results.slice(0, 4).map(({ status }) => status)).toEqual(Array(4).fill("unknown"));
      expect(new Set(results.slice(4).map(({ status }) => status))).toEqual(new Set(["skipped"]));
    });
    expect(most).toBe(4);
    expect(open).toEqual(events.slice(0, 4).map(({ id }) => id));
  });

  test("ERR does not say whose fault it is: unknown", async () => {
    await using server = await scriptedRedis(answers(() => "-ERR Protocol error: invalid bulk length"));
    await using(server, {}, async (broker) => {
      expect(await publish(broker, [event("a")])).toMatchObject([{ status: "unknown", error: { code: "PUBLISH_UNKNOWN" } }]);
    });
  });

  test("no entry id means that there is no such stream", async () => {
    await using server = await scriptedRedis(answers(() => "$-1"));
    await using(server, {}, async (broker) => {
      const [result] = await publish(broker, [event("a")]);
      expect(result).toMatchObject({
        status: "refused",
        blame: "destination",
        error: { message: saying(/no stream "order.events": provision/) },
      });
    });
  });

  test("what was answered before the connection was lost is stored, the rest is unknown, and nothing is sent again", async () => {
    const events = ["a", "b", "c", "d", "a"].map(event);
    await using server = await scriptedRedis(answers((command) => (valueOf(command, "ce_id") === events[2]!.id ? "close" : "$3\r\n1-1")));
    await using(server, {}, async (broker) => {
      const results = await publish(broker, events);
      expect(results.map(({ status }) => status)).toEqual(["stored", "stored", "unknown", "unknown", "stored"]);
      expect(idsSent(server)).toEqual([events[0], events[1], events[2], events[4]].map((sent) => sent!.id));
      expect(server.connections.taken).toBe(2);
    });
  });

  test("a server that stops answering: unknown in time, and its connection is given up", async () => {
    await using server = await scriptedRedis(answers(() => null));
    await using(server, { timeoutMs: 1_000 }, async (broker) => {
      const results = await within(15_000, "publish", publish(broker, [event("a"), event("a"), event("b")]));
      expect(results.map(({ status }) => status)).toEqual(["unknown", "skipped", "unknown"]);
      await expect.poll(() => server.connections.open).toBe(0);
      await expect(within(15_000, "probe", broker.probe(topic, never))).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
    });
  });

  test("a server that is slow, but answers, keeps its connection", async () => {
    await using server = await scriptedRedis(async (command) => {
      if (command[0] === "CONFIG") return limit(536_870_912);
      await new Promise((resolve) => setTimeout(resolve, 200));
      return "$3\r\n1-1";
    });
    await using(server, { timeoutMs: 2_000 }, async (broker) => {
      const results = await publish(broker, ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"].map(event));
      expect(new Set(results.map(({ status }) => status))).toEqual(new Set(["stored"]));
      expect(server.connections.taken).toBe(1);
    });
  });

  test("a server that takes connections and says nothing: refused in time, with nothing sent", async () => {
    await using server = await scriptedRedis(() => null);
    await using(server, { timeoutMs: 200 }, async (broker) => {
      await expect(broker.connect(never)).rejects.toMatchObject({
        code: "DESTINATION_UNAVAILABLE",
        message: saying(/did not answer within 200 ms/),
      });
      const results = await within(15_000, "publish", publish(broker, [event("a")]));
      expect(results).toMatchObject([{ status: "refused", blame: "destination" }]);
      expect(idsSent(server)).toEqual([]);
      const controller = new AbortController();
      const publishing = broker.publish(outgoing([event("a")]), controller.signal);
      controller.abort();
      expect(await within(100, "publish after an abort", publishing)).toMatchObject([{ status: "refused", blame: "destination" }]);
    });
  });

  test("nobody there: refused, and stored once somebody is", async () => {
    const server = await scriptedRedis(answers(() => "$3\r\n1-1"));
    const { port } = server;
    await server[Symbol.asyncDispose]();
    const broker = redis({ url: `redis://127.0.0.1:${port}` });
    const [result] = await publish(broker, [event("a")]);
    expect(result).toMatchObject({
      status: "refused",
      blame: "destination",
      error: { message: saying(/cannot be reached: .*ECONNREFUSED/) },
    });
    await broker[Symbol.asyncDispose]();
  });

  test("a refused password ends the connection before anything else is done, and is in no error", async () => {
    await using server = await scriptedRedis((command) =>
      command[0] === "AUTH" ? "-WRONGPASS invalid username-password pair or user is disabled." : "+OK",
    );
    await using(server, { url: `redis://clerk:hunter2@127.0.0.1:${server.port}/3` }, async (broker) => {
      const [result] = await publish(broker, [event("a")]);
      expect(result).toMatchObject({ status: "refused", blame: "destination", error: { message: saying(/WRONGPASS/) } });
      expect(inspect(result, { depth: 20, showHidden: true })).not.toContain("hunter2");
      expect(server.commands[0]).toEqual(["AUTH", "clerk", "hunter2"]);
      expect(idsSent(server)).toEqual([]);
      await expect.poll(() => server.connections.open).toBe(0);
    });
  });

  test("a database that is not to be had is not replaced by another", async () => {
    await using server = await scriptedRedis((command) => (command[0] === "SELECT" ? "-ERR DB index is out of range" : "+OK"));
    await using(server, { url: `redis://127.0.0.1:${server.port}/99` }, async (broker) => {
      await expect(broker.connect(never)).rejects.toMatchObject({ message: saying(/DB index is out of range/) });
      expect(await publish(broker, [event("a")])).toMatchObject([{ status: "refused", blame: "destination" }]);
      expect(idsSent(server)).toEqual([]);
    });
  });

  test("the server's own limit counts where it is lower, and need not be told", async () => {
    for (const [told, most] of [
      [limit(2_000), 2_000],
      [limit(5_000_000), 1_048_576],
      ["-NOPERM this user has no permissions to run the 'config|get' command", 1_048_576],
      ["-ERR unknown command 'CONFIG'", 1_048_576],
      ["*0", 1_048_576],
    ] as const) {
      await using server = await scriptedRedis((command) => (command[0] === "CONFIG" ? told : "$3\r\n1-1"));
      await using(server, {}, async (broker) => {
        const large = sampleEvent({ data: new Uint8Array(2_000) });
        const [result] = await publish(broker, [large]);
        expect(broker.can.maxBytes).toBe(most);
        expect(result).toMatchObject(
          most === 2_000 ? { status: "refused", blame: "event", error: { code: "MESSAGE_TOO_LARGE" } } : { status: "stored" },
        );
      });
    }
  });

  test("with `replicas`, what fewer of them have is unknown", async () => {
    let have = 1;
    await using server = await scriptedRedis(answers((command) => (command[0] === "WAIT" ? `:${have}` : "$3\r\n1-1")));
    await using(server, { replicas: 2, timeoutMs: 1_000 }, async (broker) => {
      expect(await publish(broker, [event("a"), event("a"), event("b")])).toMatchObject([
        { status: "unknown", error: { message: saying(/1 of 2 replicas/) } },
        { status: "skipped" },
        { status: "unknown" },
      ]);
      have = 2;
      expect(await publish(broker, [event("a"), event("a")])).toEqual([{ status: "stored" }, { status: "stored" }]);
      expect(server.commands.filter(([name]) => name === "WAIT")).toEqual(Array(3).fill(["WAIT", "2", "500"]));
    });
  });

  test("with `replicas`, what is called off before they are counted is unknown, though the primary has it", async () => {
    await using server = await scriptedRedis(answers((command) => (command[0] === "WAIT" ? null : "$3\r\n1-1")));
    await using(server, { replicas: 2 }, async (broker) => {
      const off = new AbortController();
      const publishing = broker.publish(outgoing([event("a"), event("b")]), off.signal);
      await expect.poll(() => server.commands.filter(([name]) => name === "WAIT").length).toBe(1);
      await new Promise((resolve) => setTimeout(resolve, 50));
      off.abort();
      expect(await publishing).toMatchObject([{ status: "unknown" }, { status: "unknown" }]);
    });
  });

  test("each answer is its own message's, among all kinds of them", async () => {
    const events = Array.from({ length: 9 }, (_, n) => event(`order-${n}`));
    const kinds = ["$3\r\n1-1", "$-1", "-OOM no memory", "-ERR what", "$3\r\n1-1"];
    const saidTo = (command: readonly string[]): string =>
      kinds[events.findIndex(({ id }) => id === valueOf(command, "ce_id")) % kinds.length]!;
    await using server = await scriptedRedis(answers(saidTo));
    await using(server, {}, async (broker) => {
      const large = sampleEvent({ aggregateId: "large", data: new Uint8Array(2_000_000) });
      const results = await publish(broker, [events[0]!, large, ...events.slice(1)]);
      const expected = ["stored", "refused", "refused", "unknown", "stored", "stored", "refused", "refused", "unknown"];
      expect(results.map(({ status }) => status)).toEqual([expected[0], "refused", ...expected.slice(1)]);
      expect(results[1]).toMatchObject({ blame: "event", error: { code: "MESSAGE_TOO_LARGE" } });
      expect(idsSent(server)).toEqual(events.map(({ id }) => id));
    });
  });

  test("a replica in the primary's place is left, since the name may lead elsewhere by now", async () => {
    let replica = true;
    await using server = await scriptedRedis(
      answers(() => (replica ? "-READONLY You can't write against a read only replica." : "$3\r\n1-1")),
    );
    await using(server, {}, async (broker) => {
      expect(await publish(broker, [event("a")])).toMatchObject([{ status: "refused" }]);
      replica = false;
      expect(await publish(broker, [event("a")])).toEqual([{ status: "stored" }]);
      expect(server.connections.taken).toBe(2);
    });
  });

  test("a server before Redis 7 does not count what a group was not given: its lag is not known", async () => {
    const text = (value: string): string => `$${value.length}\r\n${value}`;
    const group = (name: string, ...more: readonly string[]): string => {
      const pairs = [
        text("name"),
        text(name),
        text("consumers"),
        ":1",
        text("pending"),
        ":3",
        text("last-delivered-id"),
        text("1-1"),
        ...more,
      ];
      return `*${pairs.length}\r\n${pairs.join("\r\n")}`;
    };
    const counted = [text("entries-read"), ":1", text("lag"), ":4"];
    const uncounted = [text("entries-read"), "$-1", text("lag"), "$-1"];
    const groups = [group("old"), group("new", ...counted), group("deleted", ...uncounted)];
    await using server = await scriptedRedis(answers(() => `*3\r\n${groups.join("\r\n")}`));
    await using(server, {}, async (broker) => {
      const lags = await Promise.all(["old", "new", "deleted", "stranger"].map((consumer) => broker.lag!(topic, never, consumer)));
      expect(lags).toEqual([null, 7, null, null]);
    });
  });

  test("the lag on a stream that is not there is null, and on another kind of value an error", async () => {
    const refusals = ["-ERR no such key", "-WRONGTYPE Operation against a key holding the wrong kind of value"];
    await using server = await scriptedRedis(answers(() => refusals.shift()!));
    await using(server, {}, async (broker) => {
      expect(await broker.lag!(topic, never, "shop")).toBeNull();
      await expect(broker.lag!(topic, never, "shop")).rejects.toMatchObject({
        code: "DESTINATION_UNAVAILABLE",
        message: saying(/WRONGTYPE/),
      });
    });
  });
});
