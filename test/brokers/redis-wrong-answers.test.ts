import { createServer, type AddressInfo, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { redis, type RedisOptions } from "../../src/brokers/redis/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import { scriptedRedis } from "../support/resp.ts";
import { never, publish, topic } from "./redis.ts";

const mib = 1024 * 1024;
const text = (value: string): string => `$${Buffer.byteLength(value)}\r\n${value}`;
const list = (...items: readonly string[]): string => [`*${items.length}`, ...items].join("\r\n");
const saying = (expected: RegExp): string => expect.stringMatching(expected) as string;
const trouble = { code: "DESTINATION_UNAVAILABLE", message: saying(/^redis:\/\/127\.0\.0\.1:\d+\/0 answered/) };

const id = "1700000000000-0";
const { id: eventId, aggregateId, type } = sampleEvent();
const fields = list(...["ce_id", eventId, "ce_type", type, "ce_partitionkey", aggregateId, "data", "{}"].map(text));

/** A server that answers rightly, as far as one event takes it. */
function right(): (command: readonly string[]) => string {
  let given = false;
  return ([name, script = "", ...args]) => {
    if (name === "CONFIG") return list(text("proto-max-bulk-len"), text("536870912"));
    if (name === "XADD") return text(id);
    if (name === "TYPE") return "+stream";
    if (name === "XACK") return ":1";
    if (name === "XINFO") return list(list(...["name", "shop"].map(text), text("pending"), ":2", text("lag"), ":3"));
    if (name === "XREAD") return "*-1";
    if (script.includes("XAUTOCLAIM")) return ":0";
    if (script.includes("XTRIM")) return list(":0", ":1");
    if (script.includes("XRANGE")) return text(id);
    if (script.includes("XREADGROUP")) {
      if (args[5] !== ">") return "*0";
      if (given) return list(text(id), ":0");
      given = true;
      return list(list(text(id), fields));
    }
    return ":1";
  };
}

/** What no server of Redis answers to any of our commands. */
const wrong = {
  "an array of 4294967296 items": "*4294967296",
  "a string of 4294967296 bytes": "$4294967296",
  "a string of a negative length": "$-7",
  "a length that is no number": "*1x",
  "arrays 200,000 deep": "*1\r\n".repeat(200_000) + ":1",
  "OK to everything": "+OK",
  "an empty array": "*0",
  "an array in an array in an array": list(list(list(":1"))),
  "an array of nothing": list("$-1", "$-1"),
  "a number": ":7",
  "a number that is none": ":seven",
  "no RESP": "HTTP/1.1 400 Bad Request",
  "a line without an end": "+" + "x".repeat(2 * mib),
  "an error in an array": list(text(id), "-ERR no"),
};

describe("a redis server that answers wrongly", () => {
  const uncaught: unknown[] = [];
  const note = (error: unknown): void => void uncaught.push(error);
  beforeEach(() => void process.on("uncaughtException", note).on("unhandledRejection", note));
  afterEach(() => {
    process.off("uncaughtException", note).off("unhandledRejection", note);
    expect(uncaught.splice(0).map(String)).toEqual([]);
  });

  async function faked(answer: (command: readonly string[]) => string, options: Partial<RedisOptions> = {}) {
    const server = await scriptedRedis((command) => answer(command));
    const broker = redis({ url: `redis://127.0.0.1:${server.port}`, timeoutMs: 2_000, ...options });
    onTestFinished(async () => {
      await broker[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    });
    return broker;
  }
  const receive = (broker: ReturnType<typeof redis>) =>
    broker.receive({ consumer: "shop", topics: [topic], prefetch: 10, bytes: 32 * mib }, never)[Symbol.asyncIterator]();
  const first = async (broker: ReturnType<typeof redis>): Promise<Delivery> =>
    (await within(10_000, "delivery", receive(broker).next())).value as Delivery;

  test.each(Object.entries(wrong))(
    "%s: told in our words by whatever is done, and all goes on when it answers rightly",
    async (_, answer) => {
      let rightly = false;
      const rights = right();
      const broker = await faked((command) => (rightly || command[0] === "CONFIG" ? rights(command) : answer));
      const [result] = await within(10_000, "publish", publish(broker, [sampleEvent()]));
      expect(result).toMatchObject({
        status: "unknown",
        error: { code: "PUBLISH_UNKNOWN", message: saying(/redis:\/\/127\.0\.0\.1:\d+\/0 answered/) },
      });
      await expect(within(10_000, "receive", receive(broker).next())).rejects.toMatchObject(trouble);
      await expect(broker.oldest!(topic, never, "shop")).rejects.toMatchObject(trouble);
      await expect(broker.purge(new Date(), [topic])).rejects.toMatchObject(trouble);
      if (answer !== "*0") await expect(broker.lag!(topic, never, "shop")).rejects.toMatchObject(trouble);
      if (answer !== "*0") await expect(broker.probe(topic, never)).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
      rightly = true;
      expect(await publish(broker, [sampleEvent()])).toEqual([{ status: "stored" }]);
      const delivery = await first(broker);
      expect(delivery.envelope.id).toBe(eventId);
      await delivery.ack();
      expect(await broker.lag!(topic, never, "shop")).toBe(5);
      expect(await broker.oldest!(topic, never, "shop")).toEqual(new Date(1_700_000_000_000));
      expect(await broker.purge(new Date(), [topic])).toBe(0);
      await broker.probe(topic, never);
    },
  );

  test.each(Object.entries(wrong))("%s: an acknowledgement is refused, and the next one is taken", async (_, answer) => {
    let rightly = true;
    const rights = right();
    const broker = await faked((command) => (rightly || command[0] !== "XACK" ? rights(command) : answer));
    const delivery = await first(broker);
    rightly = false;
    if (answer === ":7") return void (await delivery.ack()); // that many were acknowledged, with those of others
    await expect(delivery.ack()).rejects.toMatchObject(trouble);
    rightly = true;
    await delivery.ack();
  });

  test.each(Object.entries(wrong))("%s: no greeting ends the process, or keeps a right server out", async (_, answer) => {
    let rightly = false;
    const rights = right();
    const broker = await faked((command) => (rightly ? rights(command) : answer));
    await within(10_000, "publish", publish(broker, [sampleEvent()]));
    rightly = true;
    await expect.poll(() => publish(broker, [sampleEvent()])).toEqual([{ status: "stored" }]);
  });

  test("entries that are no entries are told, whatever is wrong with them", async () => {
    const entry = (...parts: readonly string[]): string => list(list(...parts));
    for (const answer of [
      entry(text(id)),
      entry(":1", fields),
      entry(text("no id"), fields),
      entry(text(id), text("no fields")),
      entry(text(id), list(text("odd"))),
      entry(text(id), list(text("name"), ":1")),
      entry(text(id), list(text("name"), "$-1")),
      entry(text(id), list(text("name"), list(text("deeper")))),
      entry(text(id), ":-5"),
      entry(text(id), fields, fields),
      list(text(id), text("many")),
      list(text(id), ":-1"),
      list(text("no id"), ":0"),
    ]) {
      const rights = right();
      const broker = await faked((command) => (command[1]?.includes("XREADGROUP") ? answer : rights(command)));
      await expect(within(10_000, "receive", receive(broker).next()), answer).rejects.toMatchObject(trouble);
    }
  });

  test("a number of replicas that is none is unknown", async () => {
    const rights = right();
    const broker = await faked((command) => (command[0] === "WAIT" ? "+OK" : rights(command)), { replicas: 1 });
    expect(await publish(broker, [sampleEvent()])).toMatchObject([{ status: "unknown", error: { message: saying(/answered WAIT/) } }]);
  });

  test("an answer that nobody asked for ends the connection, and no answer is taken for another's", async () => {
    let spare = true;
    const rights = right();
    const broker = await faked((command) => {
      if (command[0] !== "CONFIG" || !spare) return rights(command);
      spare = false;
      return `${rights(command)}\r\n${text(id)}`;
    });
    await within(10_000, "publish", publish(broker, [sampleEvent()]));
    expect(await publish(broker, [sampleEvent()])).toEqual([{ status: "stored" }]);
  });

  /** A server that greets, then sends `bytes` of one string to whatever is asked, and counts those taken. */
  async function flooding(bytes: number) {
    const chunk = Buffer.alloc(mib, 97);
    const sockets: Socket[] = [];
    const flood = async (socket: Socket): Promise<void> => {
      socket.write(`$${bytes}\r\n`);
      for (let sent = 0; sent < bytes && !socket.destroyed; sent += mib)
        if (!socket.write(chunk)) await new Promise((resolve) => socket.once("drain", resolve).once("close", resolve));
    };
    const server = createServer((socket) => {
      sockets.push(socket);
      socket.on("error", () => undefined);
      socket.once("data", () => {
        socket.write(`${list(text("proto-max-bulk-len"), text("536870912"))}\r\n`);
        socket.once("data", () => void flood(socket));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const broker = redis({ url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`, timeoutMs: 2_000 });
    onTestFinished(async () => {
      await broker[Symbol.asyncDispose]();
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    return {
      broker,
      taken: () => sockets.reduce((most, { bytesWritten, writableLength }) => Math.max(most, bytesWritten - writableLength), 0),
    };
  }

  test.each([
    ["publish", (broker: ReturnType<typeof redis>) => publish(broker, [sampleEvent()])],
    ["probe", (broker: ReturnType<typeof redis>) => broker.probe(topic, never).catch((error: unknown) => error)],
    ["lag", (broker: ReturnType<typeof redis>) => broker.lag!(topic, never, "shop").catch((error: unknown) => error)],
    [
      "receive",
      (broker: ReturnType<typeof redis>) =>
        receive(broker)
          .next()
          .catch((error: unknown) => error),
    ],
  ])("of a string of 300 MiB in answer to a %s, only the first few are taken", async (_, work) => {
    const { broker, taken } = await flooding(300 * mib);
    const before = process.memoryUsage().rss;
    const said = await within(20_000, "answer", work(broker));
    expect(JSON.stringify(said, (_, value: unknown) => (value instanceof Error ? value.message : value))).toMatch(
      /answered with more than it was asked for/,
    );
    expect(taken()).toBeLessThan(16 * mib); // what the sockets hold is among them
    expect(process.memoryUsage().rss - before).toBeLessThan(100 * mib);
  });
});
