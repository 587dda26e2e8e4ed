import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { mostUnpacked } from "../../src/brokers/kafka/reading/batches.ts";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { within } from "../../src/conformance/corpus.ts";
import type { Delivery, Subscription } from "../../src/contracts/source.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka } from "../servers/kafka.ts";
import { batchOf, eventHeaders, type RawRecord } from "./kafka-batch.ts";
import { deleteRecords, makeTopic, produceRaw } from "./kafka-raw.ts";
import { never } from "./kafka.ts";
import { memoryOf } from "./memory.ts";

const event = (id: string, value = Buffer.from("{}")): RawRecord => ({ value, headers: eventHeaders(id) });
const [gzip, mib] = [1, 1024 * 1024];
const settings = { "message.max.bytes": 64 * mib, "replica.fetch.max.bytes": 64 * mib };

await describeWith("kafka", "kafka: records that are no events", () => {
  let server: Awaited<ReturnType<typeof startKafka>>;
  let url: string;
  beforeAll(async () => {
    server = await startKafka({ settings });
    url = server.url();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  let made = 0;
  const freshTopic = async (partitions = 1): Promise<string> => {
    const topic = `hostile-${(made += 1)}.events`;
    await makeTopic(url, topic, partitions);
    return topic;
  };
  const receiving = (topic: string, more: Partial<Subscription> = {}) => {
    const broker = kafka({ url, timeoutMs: 10_000, sessionMs: 6_000 });
    onTestFinished(() => broker[Symbol.asyncDispose]());
    const iterator = broker.receive({ consumer: "shop", topics: [topic], prefetch: 50, ...more }, never)[Symbol.asyncIterator]();
    const take = async (count: number): Promise<Delivery[]> => {
      const taken: Delivery[] = [];
      while (taken.length < count) taken.push((await within(30_000, "delivery", iterator.next())).value as Delivery);
      return taken;
    };
    return { take, close: async () => void (await iterator.return?.(), await broker[Symbol.asyncDispose]()) };
  };
  const why = (expected: RegExp): string => expect.stringMatching(expected) as string;
  const told = (deliveries: readonly Delivery[]): string[] => deliveries.map(({ envelope, unreadable }) => unreadable?.why ?? envelope.id);

  test("each becomes an unreadable delivery with its bytes, and the events around it are delivered", async () => {
    const topic = await freshTopic();
    const hostile: RawRecord[] = [
      { value: null },
      { value: Buffer.from("plain") },
      { headers: eventHeaders("") },
      { headers: [...eventHeaders("x"), [Buffer.from([0xff, 0xfe]), "v"]] },
      { headers: [["ce_id", Buffer.from([0xff])], ["ce_type", "t"]] }, // prettier-ignore
    ];
    for (const [n, record] of hostile.entries()) await produceRaw(url, topic, 0, batchOf([record, event(`good-${n}`)]));
    await produceRaw(
      url,
      topic,
      0,
      batchOf([event("bomb", Buffer.alloc(mostUnpacked))], { attributes: gzip, pack: (bytes) => gzipSync(bytes) }),
    );
    await produceRaw(url, topic, 0, batchOf([event("packed")], { attributes: gzip, pack: (bytes) => gzipSync(bytes) }));
    const first = receiving(topic);
    const deliveries = await first.take(12);
    expect(told(deliveries)).toEqual([
      ...[why(/no ce_id/), "good-0", why(/no ce_id/), "good-1", why(/no ce_id/), "good-2"],
      ...[why(/UTF-8/), "good-3", why(/UTF-8/), "good-4"],
      ...[why(/unpacks to more than/), "packed"],
    ]);
    expect(Buffer.from(deliveries[2]!.unreadable!.raw).includes("plain")).toBe(true);
    // Delivered again under the same names; acknowledged, they are behind us.
    await first.close();
    const second = receiving(topic);
    const again = await second.take(12);
    expect(again.map(({ envelope }) => envelope.id)).toEqual(deliveries.map(({ envelope }) => envelope.id));
    for (const delivery of again) await delivery.ack();
    await second.close();
    await produceRaw(url, topic, 0, batchOf([event("last")]));
    expect(told(await receiving(topic).take(1))).toEqual(["last"]);
  });

  test("a batch whose bytes are damaged on the broker's disk is set aside, and the next one is read", async () => {
    const topic = await freshTopic();
    for (const id of ["before", "damaged", "after"]) await produceRaw(url, topic, 0, batchOf([event(id, Buffer.from(`value of ${id}`))]));
    await server.stop("fast");
    const files = readdirSync(server.folder, { recursive: true, encoding: "utf8" });
    const segment = join(
      server.folder,
      files.find((path) => path.includes(`${topic}-0/`) && path.endsWith(".log"))!,
    );
    const bytes = readFileSync(segment);
    bytes[bytes.indexOf("value of damaged")] = 0;
    writeFileSync(segment, bytes);
    await server.start();
    const { take } = receiving(topic);
    expect(told(await take(3))).toEqual(["before", why(/checksum/), "after"]);
  });

  test("what retention removed before it was read is told once, with the number of messages, and reading goes on behind it", async () => {
    const topic = await freshTopic();
    const missed: [string, number | null][] = [];
    const subscription = { missed: (...told: [string, number | null]) => void missed.push(told) };
    const produce = (from: number, to: number) =>
      produceRaw(
        url,
        topic,
        0,
        batchOf(
          Array.from({ length: to - from }, (_, n) => event(`e${from + n}`)),
          {},
        ),
      );
    await produce(0, 4);
    await deleteRecords(url, topic, 0, 2n);
    const first = receiving(topic, subscription);
    const [one, two] = await first.take(2);
    expect(told([one!, two!])).toEqual(["e2", "e3"]);
    expect(missed, "a new consumer has missed nothing").toEqual([]);
    await one!.ack();
    await first.close();
    await produce(4, 10);
    await deleteRecords(url, topic, 0, 8n);
    for (const times of [1, 2]) {
      const next = receiving(topic, subscription);
      const [e8] = await next.take(1);
      expect(told([e8!]), String(times)).toEqual(["e8"]);
      expect(missed, String(times)).toEqual([[topic, 5]]);
      await next.close();
    }
  });

  test("what retention removed is told to a group that has read and acknowledged nothing yet", async () => {
    const topic = await freshTopic();
    const missed: [string, number | null][] = [];
    const subscription = { missed: (...told: [string, number | null]) => void missed.push(told) };
    for (const id of ["e0", "e1", "e2", "e3"]) await produceRaw(url, topic, 0, batchOf([event(id)]));
    await deleteRecords(url, topic, 0, 1n);
    const first = receiving(topic, subscription);
    expect(told(await first.take(3))).toEqual(["e1", "e2", "e3"]);
    await first.close();
    expect(missed, "what was gone before the group came was not missed").toEqual([]);
    await deleteRecords(url, topic, 0, 3n);
    expect(told(await receiving(topic, subscription).take(1))).toEqual(["e3"]);
    expect(missed).toEqual([[topic, 2]]);
  });

  test("a small batch in each of 16 partitions that unpacks to 40 MiB: one of them is in memory at a time, and none is lost", async () => {
    const topic = await freshTopic(16);
    const bomb = batchOf([event("same", Buffer.alloc(40 * mib))], { attributes: gzip, pack: (bytes) => gzipSync(bytes) });
    for (let partition = 0; partition < 16; partition++) await produceRaw(url, topic, partition, bomb);
    const subscription = { consumer: "shop", topics: [topic], prefetch: 256, waiting: 10_000, bytes: 32 * mib };
    const { received, out, peak } = await memoryOf({ url, subscription, messages: 16 });
    expect({ received, out }).toEqual({ received: 16, out: 40 * mib });
    expect(peak).toBeLessThan(400 * mib);
  });

  test("200 messages of 4 MiB at the default prefetch stay within the bound in bytes, one larger than it comes alone, and none is lost", async () => {
    const topic = await freshTopic();
    const [small, large] = [4, 48].map((size) => batchOf([event("same", Buffer.alloc(size * mib))]));
    for (let n = 0; n < 200; n++) await produceRaw(url, topic, 0, n === 100 ? large! : small!);
    const subscription = { consumer: "shop", topics: [topic], prefetch: 256, waiting: 10_000, bytes: 32 * mib };
    const { received, out, peak } = await memoryOf({ url, subscription, messages: 200 });
    expect({ received, out }).toEqual({ received: 200, out: 48 * mib });
    expect(peak).toBeLessThan(400 * mib);
  });
});
