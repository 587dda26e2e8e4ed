import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test } from "vitest";
import { kafka, type Kafka } from "../../src/brokers/kafka/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import { isWaybillError } from "../../src/core/errors.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { startKafkaForger, type KafkaForger } from "../support/kafka-forger.ts";
import { freshTopics, publish } from "./kafka.ts";

const mib = 1024 * 1024;
const int = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
};
const sized = (...parts: readonly Buffer[]): Buffer => {
  const rest = Buffer.concat(parts);
  return Buffer.concat([int(rest.length), rest]);
};
/** The answer's body begins here, or a byte later. */
const body = 8;

/** What no broker answers to any request, made of the right answer. */
const wrong: Readonly<Record<string, (answer: Buffer) => Buffer>> = {
  "a size of 2": () => Buffer.concat([int(2), int(0), int(0)]),
  "a size of 0": () => Buffer.concat([int(0), int(0), int(0)]),
  "a negative size": () => Buffer.concat([int(-7), int(0), int(0)]),
  "a size of 2 GiB": (answer) => Buffer.concat([int(2 ** 31 - 1), answer.subarray(4)]),
  "an answer that ends early": (answer) => sized(answer.subarray(4, body + Math.floor((answer.length - body) / 2))),
  "an answer of nothing": (answer) => sized(answer.subarray(4, body)),
  zeros: (answer) => sized(answer.subarray(4, body), Buffer.alloc(answer.length)),
  "all ones": (answer) => sized(answer.subarray(4, body), Buffer.alloc(answer.length, 0xff)),
  "another request's answer": (answer) => sized(int(77), answer.subarray(body)),
  "a page of HTML": () => Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n<html>"),
};

/** The requests that a relay and a subscriber send. */
const requests = {
  ...{ produce: 0, fetch: 1, listOffsets: 2, metadata: 3, offsetCommit: 8, offsetFetch: 9, findCoordinator: 10, joinGroup: 11 },
  ...{ heartbeat: 12, syncGroup: 14, apiVersions: 18, initProducerId: 22, describeConfigs: 32 },
} as const;

const javascripts =
  /is not (a function|iterable|defined)|Cannot read|undefined|\bNaN\b|Invalid (array|typed)|out of (range|bounds)|beyond|ERR_/i;

await describeWith("kafka", "a kafka broker that answers wrongly", () => {
  let server: KafkaServer;
  let forger: KafkaForger;
  let url: string;
  beforeAll(async () => {
    server = await startKafka({ proxied: true });
    forger = await startKafkaForger(server.proxiedPort);
    server.proxy!.retarget(forger.port);
    url = `kafka://127.0.0.1:${server.proxy!.port}`;
  });
  afterAll(async () => {
    await forger[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  const uncaught: unknown[] = [];
  const note = (error: unknown): void => void uncaught.push(error);
  beforeEach(() => void process.on("uncaughtException", note).on("unhandledRejection", note));
  afterEach(() => {
    for (const api of Object.values(requests)) forger.forge(api, null);
    process.off("uncaughtException", note).off("unhandledRejection", note);
    expect(uncaught.splice(0).map(String)).toEqual([]);
  });

  /** Publishes, receives and asks for the lag until it is over, as a relay and a subscriber do. */
  function busy(broker: Kafka, topic: string) {
    const ending = new AbortController();
    const troubles: unknown[] = [];
    const stored: string[] = [];
    const delivered = new Set<string>();
    const publishing = async (): Promise<void> => {
      while (!ending.signal.aborted) {
        const event = sampleEvent();
        const [result] = await within(20_000, "publish", publish(broker, [event], topic));
        if (result!.status === "stored") stored.push(event.id);
        else if ("error" in result!) troubles.push(result.error);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    };
    const receiving = async (): Promise<void> => {
      while (!ending.signal.aborted) {
        try {
          for await (const { envelope, ack } of broker.receive({ consumer: "shop", topics: [topic], prefetch: 10 }, ending.signal)) {
            delivered.add(envelope.id);
            await ack();
          }
        } catch (error) {
          troubles.push(error);
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      }
    };
    const asking = async (): Promise<void> => {
      while (!ending.signal.aborted) {
        await broker.lag!(topic, ending.signal, "shop").catch((error: unknown) => ending.signal.aborted || troubles.push(error));
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    };
    const over = Promise.all([publishing(), receiving(), asking()]);
    return {
      troubles,
      stored,
      delivered,
      async end() {
        ending.abort();
        await within(20_000, "the end", over);
      },
    };
  }

  test.each(Object.entries(wrong))("%s: told in our words, whatever it answers, and all flows when it answers rightly", async (_, make) => {
    const [topic] = await freshTopics(server.url(), 1);
    for (const [name, api] of Object.entries(requests)) {
      const broker = kafka({ url, timeoutMs: 1_000, sessionMs: 1_500 });
      const work = busy(broker, topic);
      if (["offsetCommit", "heartbeat", "fetch"].includes(name)) await expect.poll(() => work.delivered.size).toBeGreaterThan(0);
      const before = forger.forged;
      forger.forge(api, make);
      await expect.poll(() => forger.forged, { message: name }).toBeGreaterThan(before);
      forger.forge(api, null);
      const after = work.stored.length;
      await expect.poll(() => work.stored.length, { message: name, timeout: 20_000 }).toBeGreaterThan(after);
      await expect.poll(() => work.delivered.has(work.stored.at(-1)!), { message: name, timeout: 20_000 }).toBe(true);
      for (const trouble of work.troubles) {
        expect.soft(isWaybillError(trouble), `${name}: ${String(trouble)}`).toBe(true);
        expect.soft(String(trouble), name).not.toMatch(javascripts);
      }
      await work.end();
      await broker[Symbol.asyncDispose]();
    }
  });

  test("of an answer of 300 MiB, no more is taken than the request can cause", async () => {
    const [topic] = await freshTopics(server.url(), 1);
    const open = (): Kafka => {
      const broker = kafka({ url, timeoutMs: 5_000, sessionMs: 3_000 });
      onTestFinished(() => broker[Symbol.asyncDispose]());
      return broker;
    };
    function* flood(answer: Buffer): Generator<Buffer> {
      yield Buffer.concat([int(300 * mib), answer.subarray(4, body)]);
      for (let sent = 0; sent < 300; sent++) yield Buffer.alloc(mib);
    }
    const rss = process.memoryUsage().rss;
    for (const api of [requests.produce, requests.metadata]) {
      forger.forge(api, flood);
      const [result] = await within(20_000, "publish", publish(open(), [sampleEvent()], topic));
      expect(result).toMatchObject({ error: { message: expect.stringMatching(/announced an answer of 314572800 bytes/) as string } });
      forger.forge(api, null);
    }
    forger.forge(requests.fetch, flood);
    const work = busy(open(), topic);
    await expect.poll(() => work.troubles.map(String).join("\n"), { timeout: 20_000 }).toMatch(/announced an answer of 314572800 bytes/);
    forger.forge(requests.fetch, null);
    await expect.poll(() => work.delivered.size, { timeout: 20_000 }).toBeGreaterThan(0);
    await work.end();
    expect(forger.taken).toBeLessThan(32 * mib);
    expect(process.memoryUsage().rss - rss).toBeLessThan(150 * mib);
  });

  test("a topic whose largest message is said to be none, or less than none, kills no event", async () => {
    const [topic] = await freshTopics(server.url(), 1);
    forger.forge(requests.describeConfigs, (answer) => Buffer.from(answer.toString("latin1").replace("1048588", "-000001"), "latin1"));
    const before = forger.forged;
    const broker = kafka({ url });
    onTestFinished(() => broker[Symbol.asyncDispose]());
    expect(await publish(broker, [sampleEvent()], topic)).toEqual([{ status: "stored" }]);
    expect(forger.forged).toBeGreaterThan(before);
    forger.forge(requests.describeConfigs, null);
  });
});
