import { createRecordsBatch, produceV9, Reader, readRecordsBatches } from "@platformatic/kafka";
import { describe, expect, test } from "vitest";
import { BatchWriter } from "../../src/brokers/kafka/writing/batch-writer.ts";
import { seal, type Batch } from "../../src/brokers/kafka/writing/batch.ts";
import { batchesIn } from "../../src/brokers/kafka/reading/batches.ts";
import { envelopeOf } from "../../src/brokers/kafka/message.ts";
import { partitionOf, partitionOfText } from "../../src/brokers/kafka/reading/partition.ts";
import { produceRequest } from "../../src/brokers/kafka/writing/produce-request.ts";
import { comparable, difficultEvents, sampleEvent } from "../../src/conformance/corpus.ts";
import { toAttributes } from "../../src/core/cloudevents.ts";
import type { Envelope } from "../../src/core/event.ts";
import { seededRandom } from "../../src/core/random.ts";

const [at, source] = [1_767_225_600_123, "/test"];
const who = { id: 5n, epoch: 3, sequence: 17, isTransactional: false };

function written(events: readonly Envelope[], writer = new BatchWriter(64)): Batch {
  writer.begin();
  for (const event of events) writer.add(event, source);
  const batch = { topic: "t", partition: 2, leader: { host: "h", port: 1 }, count: events.length, bytes: writer.end(at) };
  seal(batch, who);
  return batch;
}

/** As the client's encoder has them. */
function asTheirs(events: readonly Envelope[], topic = "t", partition = 2) {
  return events.map((event) => {
    const attributes = Object.entries(toAttributes(event, source)).map(
      ([name, value]) => [name === "datacontenttype" ? "content-type" : `ce_${name}`, value] as const,
    );
    const headers = new Map(
      [...attributes, ...Object.entries(event.headers)].map(([name, value]) => [Buffer.from(name), Buffer.from(value)]),
    );
    return { topic, partition, key: Buffer.from(event.aggregateId), value: Buffer.from(event.data), headers, timestamp: BigInt(at) };
  });
}
const theirProducer = { producerId: who.id, producerEpoch: who.epoch, sequences: { getWithDefault: () => who.sequence } as never };
const theirs = (events: readonly Envelope[], how: object = {}): Buffer =>
  createRecordsBatch(asTheirs(events), { ...theirProducer, ...how }).buffer;

/** Of every kind that a length, a character or a number may have on the way. */
function hostile(seed: number): Envelope[] {
  const random = seededRandom(seed);
  const below = (most: number): number => Math.floor(random.next() * most);
  const one = <T>(...of: readonly T[]): T => of[below(of.length)]!;
  const length = (): number => one(0, 1, 31, 32, 62, 63, 64, 65, 127, 128, below(300), below(5_000));
  const text = (most = length()): string => {
    const letter = one("a", "é", "🚚", "\u{7f}", "\u{80}", "\0", "\uffff");
    const mixed = (): string => (random.next() < 0.8 ? "x" : letter);
    return one(() => "x".repeat(most), () => letter.repeat(most), () => Array.from({ length: most }, mixed).join(""))(); // prettier-ignore
  };
  const headers = (): [string, string][] =>
    Array.from({ length: one(0, 0, 1, 2, 51, 52, 53, 200) }, (_, n) => [`h${n}${text(below(9))}`, text()]);
  const instants = [
    0,
    1,
    -1,
    999,
    1_000,
    at,
    at + 9,
    at + 10,
    at + 99,
    at + 876,
    at + 877,
    253_402_300_799_999,
    253_402_300_800_000,
    -62_198_755_200_000,
    8.64e15,
    -8.64e15,
  ];
  return Array.from({ length: 1 + below(one(1, 3, 70)) }, () =>
    sampleEvent({
      ...{ id: text(), type: text(), aggregateType: text(), aggregateId: text(), contentType: text() },
      ...{ data: Buffer.alloc(one(length(), length(), below(100_000)), random.bytes(7)), headers: Object.fromEntries(headers()) },
      ...{ idempotencyKey: one(null, "", text()), createdAt: new Date(one(...instants)) },
      ...{ seq: one(0n, 1n, 9_007_199_254_740_993n, 2n ** 63n - 1n), eventVersion: one(1, 9, 10, 2_147_483_647) },
    }),
  );
}

type Pair = readonly [Buffer | null, Buffer | null];
/** For comparison: that of thousands of buffers takes minutes otherwise. */
const shown = (records: Iterable<{ readonly value: Buffer | null; readonly headers: Iterable<Pair> | null }>): string[] =>
  [...records].map(({ value, headers }) => [value, ...[...headers!].flat()].map((bytes) => bytes!.toString("base64")).join());

describe("kafka: a batch that is written here", () => {
  test.each(Array.from({ length: 30 }, (_, n) => n + 1))(
    "is the client's byte by byte, and read as it was, whatever is in it (%i)",
    (seed) => {
      const events = hostile(seed);
      const { bytes } = written(events);
      expect(bytes.equals(theirs(events))).toBe(true);
      const [read] = readRecordsBatches(Reader.from(bytes));
      expect(read).toMatchObject({
        producerId: 5n,
        producerEpoch: 3,
        firstSequence: 17,
        lastOffsetDelta: events.length - 1,
        attributes: 0,
      });
      expect(read!.records.map(({ key }) => key!.toString())).toEqual(events.map(({ aggregateId }) => Buffer.from(aggregateId).toString()));
      expect(shown(read!.records)).toEqual(shown(asTheirs(events)));
      const [own, ...more] = [...batchesIn(bytes)];
      expect([more, own!.unreadable, own!.producerId, own!.lastOffsetDelta]).toEqual([[], undefined, 5n, events.length - 1]);
      expect(shown(own!.records)).toEqual(shown(asTheirs(events)));
    },
  );

  test("brings every event back as it was", () => {
    const back = (event: Envelope) => envelopeOf([...batchesIn(written([event]).bytes)][0]!.records[0]!) as Envelope;
    for (const [about, event] of difficultEvents()) expect(comparable(back(event)), about).toEqual(comparable(event));
    const headers = Object.fromEntries([
      ["__proto__", "x"],
      ["constructor", "y"],
    ]);
    expect(Object.entries(back(sampleEvent({ headers })).headers)).toEqual(Object.entries(headers));
  });

  test("holds thousands of records, and belongs to a transaction if its producer does", () => {
    const events = Array.from({ length: 9_000 }, (_, n) => sampleEvent({ createdAt: new Date(at + n * 7) }));
    const batch = written(events);
    expect(batch.bytes.equals(theirs(events))).toBe(true);
    seal(batch, { ...who, isTransactional: true });
    expect(batch.bytes.equals(theirs(events, { transactionalId: "x" }))).toBe(true);
  });

  test("is as large as it was counted, to the byte: alone, among others, and when one was taken back", () => {
    const others = Array.from({ length: 70 }, () => sampleEvent());
    for (const event of hostile(7)) {
      const writer = new BatchWriter(64);
      writer.begin();
      for (const other of others) writer.add(other, source);
      const before = writer.batchBytes;
      writer.add(event, source);
      expect(writer.aloneBytes).toBe(theirs([event]).length);
      expect(writer.batchBytes).toBe(theirs([...others, event]).length);
      writer.undo();
      expect(writer.batchBytes).toBe(before);
      expect(writer.end(at).readInt32BE(57)).toBe(others.length);
    }
  });

  test("does not change those before it, nor is it changed by one that fails in the middle", () => {
    const writer = new BatchWriter(64);
    const [first, second] = [[sampleEvent(), sampleEvent({ data: new Uint8Array(40_000) })], [sampleEvent()]];
    const one = written(first, writer);
    writer.begin();
    expect(() => writer.add(sampleEvent({ headers: { big: "x".repeat(90_000), ce_id: "1" } }), source)).toThrow();
    writer.undo();
    const two = written(second, writer);
    expect([one.bytes.equals(theirs(first)), two.bytes.equals(theirs(second))]).toEqual([true, true]);
  });

  test("takes no header that would be read as an attribute, and none that is no text", () => {
    const writer = new BatchWriter();
    writer.begin();
    for (const name of ["ce_id", "CE_Type", "content-type", "Content-Type"])
      expect(() => writer.add(sampleEvent({ headers: { [name]: "x" } }), source)).toThrow(
        expect.objectContaining({ code: "RESERVED_HEADER" }) as Error,
      );
    expect(() => writer.add(sampleEvent({ headers: { n: 5 as never } }), source)).toThrow(TypeError);
    expect(() => writer.add(sampleEvent({ createdAt: new Date(NaN) }), source)).toThrow(RangeError);
  });
});

test.each([null, "waybill-1"])("kafka: a request with batches is the client's byte by byte (transaction: %s)", (transactionalId) => {
  const events = [sampleEvent(), sampleEvent()];
  const spots = [["orders.events", 0], ["x".repeat(249), 1], ["orders.events", 300]] as const; // prettier-ignore
  const batches = spots.map(([topic, partition]) => ({ ...written(events), topic, partition }));
  for (const batch of batches) seal(batch, { ...who, isTransactional: transactionalId !== null });
  const expected = produceV9.createRequest(
    -1,
    4_000,
    spots.flatMap(([topic, partition]) => asTheirs(events, topic, partition)),
    { ...theirProducer, ...(transactionalId === null ? {} : { transactionalId }) },
  );
  expect(Buffer.concat(produceRequest(batches, { transactionalId, timeoutMs: 4_000 })).equals(expected.buffer)).toBe(true);
});

test("kafka: a key has the partition of its bytes, whatever is in it", () => {
  for (const { aggregateId } of Array.from({ length: 10 }, (_, n) => hostile(n + 100)).flat())
    for (const partitions of [1, 2, 12, 1_000])
      expect(partitionOfText(aggregateId, partitions)).toBe(partitionOf(Buffer.from(aggregateId), partitions));
});
