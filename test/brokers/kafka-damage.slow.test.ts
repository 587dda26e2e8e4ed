import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { within } from "../../src/conformance/corpus.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka } from "../servers/kafka.ts";
import { batchOf, eventHeaders } from "./kafka-batch.ts";
import { makeTopic, produceRaw } from "./kafka-raw.ts";
import { never } from "./kafka.ts";

/** What is done to a batch, which begins at `at`. */
type Damage = (log: Buffer, at: number) => void;

/** What the server answers to a fetch at the damaged batch is said beside each; behind it too, where its index has no entry. */
const damages: Record<string, Damage> = {
  "a length below zero: CORRUPT_MESSAGE": (log, at) => void log.writeInt32BE(-5, at + 8),
  "a length of less than a head: its bytes, then CORRUPT_MESSAGE": (log, at) => void log.writeInt32BE(20, at + 8),
  "a length beyond the file: nothing, and no error": (log, at) => void log.writeInt32BE(0x7fffff00, at + 8),
  "a length that reaches into the next batch: its bytes, then nothing": (log, at) =>
    void log.writeInt32BE(log.readInt32BE(at + 8) + 256, at + 8),
  "an old format: INVALID_RECORD": (log, at) => void (log[at + 16] = 0),
  "no format at all: UNKNOWN_SERVER_ERROR": (log, at) => void (log[at + 16] = 255),
  "an offset below zero: the batch behind it": (log, at) => void log.writeBigInt64BE(-9n, at),
  "an offset far ahead: its bytes": (log, at) => void log.writeBigInt64BE(1n << 40n, at),
  "more offsets than there are: its bytes": (log, at) => void log.writeInt32BE(0x7fffff00, at + 23),
  "zeros: CORRUPT_MESSAGE": (log, at) => void log.fill(0, at, endOf(log, at)),
  "garbage: CORRUPT_MESSAGE": (log, at) => void log.fill(0xff, at, endOf(log, at)),
};

const endOf = (log: Buffer, at: number): number => at + 12 + log.readInt32BE(at + 8);
const batches = 8;
const perBatch = 2;

await describeWith("kafka", "kafka: a batch that is damaged on the server's disk", () => {
  let server: Awaited<ReturnType<typeof startKafka>>;
  beforeAll(async () => void (server = await startKafka()));
  afterAll(() => server[Symbol.asyncDispose]());

  let made = 0;
  const ids = (n: number): string[] => Array.from({ length: perBatch }, (_, i) => `e${n}-${i}`);
  const produce = (topic: string, n: number, partition = 0): Promise<void> =>
    produceRaw(
      server.url(),
      topic,
      partition,
      batchOf(ids(n).map((id) => ({ value: Buffer.from(`value of ${id}`), headers: eventHeaders(id) }))),
    );
  const freshTopic = async (partitions: number, settings: Readonly<Record<string, string>>): Promise<string> => {
    const topic = `damage-${(made += 1)}.events`;
    await makeTopic(server.url(), topic, partitions, settings);
    for (let n = 0; n < batches; n++) await produce(topic, n);
    return topic;
  };
  /** While the server runs: it reads its files again for each fetch. */
  const harm = (topic: string, nth: number, damage: Damage): void => {
    const files = readdirSync(server.folder, { recursive: true, encoding: "utf8" });
    const path = join(
      server.folder,
      files.find((name) => name.includes(`${topic}-0/`) && name.endsWith(".log"))!,
    );
    const log = readFileSync(path);
    let at = 0;
    for (let n = 0; n < nth; n++) at = endOf(log, at);
    damage(log, at);
    writeFileSync(path, log);
  };
  const receiving = (topic: string) => {
    const broker = kafka({ url: server.url(), timeoutMs: 10_000, sessionMs: 6_000 });
    onTestFinished(() => broker[Symbol.asyncDispose]());
    const iterator = broker.receive({ consumer: "shop", topics: [topic], prefetch: 100 }, never)[Symbol.asyncIterator]();
    const next = async (): Promise<Delivery> => (await within(20_000, "delivery", iterator.next())).value as Delivery;
    return {
      next,
      /** Acknowledges as it goes. */
      async until(id: string): Promise<Delivery[]> {
        const taken: Delivery[] = [];
        while (taken.at(-1)?.envelope.id !== id) {
          taken.push(await next());
          await taken.at(-1)!.ack();
        }
        return taken;
      },
      close: async () => void (await iterator.return?.(), await broker[Symbol.asyncDispose]()),
    };
  };
  const told = (deliveries: readonly Delivery[]): string[] =>
    deliveries.map(({ envelope, unreadable }) => (unreadable === undefined ? envelope.id : "unreadable"));
  /** Unreadable ones side by side count as one. */
  const lines = (found: readonly string[]): string[] => found.filter((one, n) => one !== "unreadable" || found[n - 1] !== one);
  const good = (from: number, to: number): string[] => Array.from({ length: to - from }, (_, n) => ids(from + n)).flat();

  for (const [about, damage] of Object.entries(damages)) {
    test(`${about}: it is set aside with its bytes, every other event is delivered, and nothing comes again`, async () => {
      const topic = await freshTopic(1, {});
      harm(topic, 3, damage);
      const first = receiving(topic);
      const deliveries = await first.until(`e${batches - 1}-1`);
      expect(lines(told(deliveries))).toEqual([...good(0, 3), "unreadable", ...good(4, batches)]);
      const { raw } = deliveries.find(({ unreadable }) => unreadable !== undefined)!.unreadable!;
      expect(raw.length).toBeGreaterThan(30);
      await first.close();
      await produce(topic, batches);
      const second = receiving(topic);
      expect(told(await second.until(`e${batches}-1`))).toEqual(ids(batches));
      await second.close();
    });
  }

  test("when reading begins in the middle of the batch before it, nothing of that is lost", async () => {
    const topic = await freshTopic(1, {});
    const first = receiving(topic);
    await first.until("e2-0");
    await first.close();
    harm(topic, 3, damages["a length below zero: CORRUPT_MESSAGE"]!);
    const deliveries = await receiving(topic).until(`e${batches - 1}-1`);
    expect(lines(told(deliveries))).toEqual(["e2-1", "unreadable", ...good(4, batches)]);
  });

  test("the first of its file, which no fetch shows: what is said is where it was, and reading goes on at the next that the server finds", async () => {
    const topic = await freshTopic(1, { "index.interval.bytes": "100" });
    harm(topic, 0, damages["a length below zero: CORRUPT_MESSAGE"]!);
    const deliveries = await receiving(topic).until(`e${batches - 1}-1`);
    expect(lines(told(deliveries))[0]).toBe("unreadable");
    expect(deliveries[0]!.unreadable!.why).toMatch(/CORRUPT_MESSAGE.*\(partition 0, offsets 0 to \d\)$/);
    const rest = told(deliveries).slice(1);
    expect(rest.length).toBeGreaterThanOrEqual((batches - 3) * perBatch);
    expect(good(0, batches).slice(-rest.length)).toEqual(rest);
  });

  test("the first of its file, with nothing behind it that the server finds: all of it is set aside, and what comes later is read", async () => {
    const topic = await freshTopic(1, {});
    harm(topic, 0, damages["zeros: CORRUPT_MESSAGE"]!);
    const { next } = receiving(topic);
    const lost = await next();
    expect(lost.unreadable?.why).toMatch(/CORRUPT_MESSAGE.*\(partition 0, offsets 0 to 15\)$/);
    await lost.ack();
  });

  test("the other partitions of the topic are read meanwhile, by the same receiving", async () => {
    const topic = await freshTopic(2, {});
    harm(topic, 3, damages["a length beyond the file: nothing, and no error"]!);
    for (let n = 100; n < 103; n++) await produce(topic, n, 1);
    const { next } = receiving(topic);
    const deliveries: Delivery[] = [];
    const wanted = [...good(0, 3), ...good(4, batches), ...good(100, 103)];
    while (told(deliveries).filter((one) => one !== "unreadable").length < wanted.length) deliveries.push(await next());
    const found = told(deliveries);
    expect(found.indexOf("e102-1")).toBeLessThan(found.indexOf("unreadable"));
    expect(found.filter((one) => one !== "unreadable").toSorted()).toEqual(wanted.toSorted());
  });
});
