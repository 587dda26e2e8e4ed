import { gzipSync } from "node:zlib";
import { compressionsAlgorithms, crc32c as theirs } from "@platformatic/kafka";
import { describe, expect, test } from "vitest";
import { batchesIn, mostRecords, mostUnpacked, type ReadBounds, type RecordBatch } from "../../src/brokers/kafka/reading/batches.ts";
import { crc32c } from "../../src/brokers/kafka/crc32c.ts";
import { envelopeOf } from "../../src/brokers/kafka/message.ts";
import { itemsOf } from "../../src/brokers/kafka/reading/records.ts";
import { unpack } from "../../src/brokers/kafka/reading/unpack.ts";
import { seededRandom } from "../../src/core/random.ts";
import { batchOf, emptyHeaders, eventHeaders, type BatchOptions } from "./kafka-batch.ts";

const [gzip, snappy, lz4] = [1, 2, 3];
const event = { value: Buffer.from("data"), headers: eventHeaders("1") };
const read = (bytes: Buffer): RecordBatch[] => [...batchesIn(bytes)];
const why = (bytes: Buffer): string | undefined => read(bytes)[0]?.unreadable?.why;

describe("kafka: compressed batches", () => {
  const random = seededRandom(3);
  const samples = [
    ...[Buffer.alloc(0), Buffer.from("a"), Buffer.from("abcabcabcabcabcabc".repeat(50)), Buffer.alloc(300_000)],
    ...[Buffer.from(Array.from({ length: 100_000 }, () => Math.floor(random.next() * 256)))],
    ...[Buffer.from(Array.from({ length: 200_000 }, () => (random.next() < 0.9 ? 97 : Math.floor(random.next() * 256))))],
  ];

  test("are what they were before, in every format", () => {
    for (const [code, name] of [
      [gzip, "gzip"],
      [snappy, "snappy"],
      [lz4, "lz4"],
    ] as const)
      // prettier-ignore
      for (const sample of samples) {
        const packed = Buffer.from(compressionsAlgorithms[name].compressSync(sample));
        expect(unpack(code, packed, sample.length || 1).equals(sample), `${name} ${sample.length}`).toBe(true);
      }
    const blocks = samples.map((sample) => {
      const packed = Buffer.from(compressionsAlgorithms.snappy.compressSync(sample));
      const length = Buffer.alloc(4);
      length.writeUInt32BE(packed.length);
      return Buffer.concat([length, packed]);
    });
    const java = Buffer.concat([Buffer.from("\x82SNAPPY\0", "latin1"), Buffer.from([0, 0, 0, 1, 0, 0, 0, 1]), ...blocks]);
    expect(unpack(snappy, java, mostUnpacked).equals(Buffer.concat(samples))).toBe(true);
  });

  test("that unpack to more than the bound are refused before they take the memory", () => {
    for (const [code, name] of [
      [gzip, "gzip"],
      [snappy, "snappy"],
      [lz4, "lz4"],
    ] as const)
      // prettier-ignore
      expect(() => unpack(code, Buffer.from(compressionsAlgorithms[name].compressSync(Buffer.alloc(100_001))), 100_000), name).toThrow(
        /more than 100000 bytes/,
      );
    // A head that promises what cannot come.
    expect(() => unpack(snappy, Buffer.from([0xff, 0xff, 0xff, 0x1f, 0]), mostUnpacked)).toThrow(/damaged/);
  });

  test("that are damaged are called so: no byte that is changed or cut makes anything else of them", () => {
    for (const [code, name] of [
      [gzip, "gzip"],
      [snappy, "snappy"],
      [lz4, "lz4"],
    ] as const) {
      // prettier-ignore
      const packed = Buffer.from(compressionsAlgorithms[name].compressSync(samples[2]!));
      for (let at = 0; at < packed.length; at++) {
        const changed = Buffer.from(packed);
        changed[at]! ^= 1 + Math.floor(random.next() * 255);
        for (const hostile of [changed, packed.subarray(0, at)]) {
          try {
            expect(unpack(code, hostile, 10_000).length).toBeLessThanOrEqual(10_000);
          } catch (error) {
            expect((error as Error).message, name).toMatch(/damaged|more than 10000 bytes/);
          }
        }
      }
    }
  });
});

describe("kafka: batches", () => {
  test("carry the checksum that the client writes", () => {
    for (const text of ["", "123456789", "x".repeat(5_000)]) expect(crc32c(Buffer.from(text))).toBe(theirs(Buffer.from(text)));
  });

  test("are read one by one, and the last, which an answer cuts short, is left for the next", () => {
    const [one, two] = [batchOf([event, event]), batchOf([event], { firstOffset: 2n })];
    expect(read(Buffer.concat([one, two])).map(({ firstOffset, records }) => [firstOffset, records.length])).toEqual([[0n, 2], [2n, 1]]); // prettier-ignore
    for (let cut = 0; cut < two.length; cut++) expect(read(Buffer.concat([one, two.subarray(0, cut)]))).toHaveLength(1);
    const packed = batchOf([event, event], { attributes: gzip, pack: (bytes) => gzipSync(bytes) });
    expect(read(packed)[0]!.records.map(({ value }) => String(value))).toEqual(["data", "data"]);
  });

  test("that cannot be read are one item with their bytes, and what is behind them is read", () => {
    const changed = batchOf([event]);
    changed[70]! ^= 1;
    const cases: Record<string, [Buffer, RegExp]> = {
      checksum: [changed, /checksum/],
      "an old format": [batchOf([event], { magic: 1 }), /format 1/],
      "no compression that is known": [batchOf([event], { attributes: 5 }), /not known \(5\)/],
      "not what it says": [batchOf([event], { attributes: gzip }), /damaged/],
      "more records than there are": [batchOf([event], { count: 2 }), /records are damaged/],
      "more records than bytes": [batchOf([event], { count: 2 ** 30 }), /records are damaged/],
      "a bomb": [batchOf([event], { attributes: gzip, pack: () => gzipSync(Buffer.alloc(mostUnpacked + 1)) }), /unpacks to more than/],
      "more records than fit the memory": [
        batchOf([], { attributes: gzip, count: mostRecords + 1, pack: () => gzipSync(Buffer.alloc(7 * (mostRecords + 1))) }),
        /more than 200000 records/,
      ],
      "too short": [Buffer.from("0000000000000000000000060000000002ff", "hex"), /shorter than the head/],
    };
    for (const [about, [bytes, expected]] of Object.entries(cases)) {
      expect(why(bytes), about).toMatch(expected);
      const last = read(bytes)[0]!.lastOffsetDelta;
      const after = batchOf([event], { firstOffset: BigInt(last) + 1n });
      const items = itemsOf({ batches: batchesIn(Buffer.concat([bytes, after])) }, 0n);
      expect(
        items.map(({ record, unreadable }) => (unreadable === undefined ? record !== null : unreadable.raw.length)),
        about,
      ).toEqual([bytes.length, true]);
    }
  });

  test("with 30 million headers in one record are not unpacked further: it is set aside, and the others are read", () => {
    const pack = (bytes: Buffer): Buffer => gzipSync(Buffer.concat([bytes, emptyHeaders(30_000_000, 1)]));
    const [good, bad] = itemsOf({ batches: batchesIn(batchOf([event], { attributes: gzip, count: 2, pack })) }, 0n);
    expect(envelopeOf(good!.record!)).toMatchObject({ id: "1", type: "Paid" });
    expect(envelopeOf(bad!.record!)).toBe("it has more than 10000 headers");
    expect(bad!.bytes).toBeGreaterThan(60_000_000);
  });

  test("with 30 million headers in many records take memory for those of one record at a time", () => {
    const pack = (): Buffer => gzipSync(Buffer.concat(Array.from({ length: 3_000 }, (_, n) => emptyHeaders(10_000, n))));
    const items = itemsOf({ batches: batchesIn(batchOf([], { attributes: gzip, count: 3_000, pack })) }, 0n);
    expect(items).toHaveLength(3_000);
    expect([...items[2_999]!.record!.headers!]).toHaveLength(10_000);
  });

  test("that are damaged take no offset from the batch behind them", () => {
    const bytes = batchOf([event]);
    bytes.writeInt32BE(2 ** 30, 23);
    const items = itemsOf({ batches: batchesIn(Buffer.concat([bytes, batchOf([event], { firstOffset: 1n })])) }, 0n);
    expect(items.map(({ first, last, unreadable }) => [first, last, unreadable !== undefined])).toEqual([
      [0n, 0n, true],
      [1n, 1n, false],
    ]);
  });

  const spans = (bytes: Buffer, from: bigint, bounds: ReadBounds) =>
    itemsOf({ batches: batchesIn(bytes, bounds) }, from).map(({ first, last, unreadable }) => [first, last, unreadable !== undefined]);
  const three = (): Buffer[] => [0n, 2n, 4n].map((firstOffset) => batchOf([event, event], { firstOffset }));
  const all = [0n, 1n, 2n, 3n, 4n, 5n].map((offset) => [offset, offset, false]);

  test("whose length is damaged are told from one that is cut short only when they are looked into, and then the one behind is found", () => {
    const [one, two, last] = three();
    two!.writeInt32BE(2 ** 30, 8);
    const bytes = Buffer.concat([one!, two!, last!]);
    expect(spans(bytes, 0n, {})).toEqual(all.slice(0, 2));
    expect(spans(bytes, 0n, { thorough: true })).toEqual([...all.slice(0, 2), [2n, 3n, true], ...all.slice(4)]);
    expect(spans(bytes, 2n, { thorough: true })).toEqual([[2n, 3n, true], ...all.slice(4)]);
    // A length that no batch can have is no cut.
    two!.writeInt32BE(-1, 8);
    expect(spans(Buffer.concat([one!, two!, last!]), 0n, {})).toEqual([...all.slice(0, 2), [2n, 3n, true], ...all.slice(4)]);
  });

  test("that lie in another's value are never read, not even when it is damaged elsewhere", () => {
    const inner = batchOf([event], { firstOffset: 1n });
    const outer = batchOf([{ value: inner }]);
    const after = batchOf([event], { firstOffset: 5n });
    for (let cut = 61; cut < outer.length; cut++) expect(spans(outer.subarray(0, cut), 0n, { end: 9n })).toEqual([]);
    // One that came there after the end of the log was told.
    const late = batchOf([{ value: inner }], { firstOffset: 9n });
    expect(spans(Buffer.concat([late, batchOf([event], { firstOffset: 10n })]), 0n, { end: 9n })).toEqual([]);
    outer[30]! ^= 1;
    expect(spans(Buffer.concat([outer, after]), 0n, { end: 9n })).toEqual([[0n, 4n, true], [5n, 5n, false]]); // prettier-ignore
  });

  test("whose own offset is damaged, which no checksum covers, are set aside in their place, and take nobody else's", () => {
    for (const wrong of [-9n, 0n, 3n, 5n, 2n ** 40n]) {
      const [one, two, last] = three();
      two!.writeBigInt64BE(wrong, 0);
      expect(spans(Buffer.concat([one!, two!, last!]), 0n, { end: 6n }), String(wrong)).toEqual([...all.slice(0, 2), [2n, 3n, true], ...all.slice(4)]); // prettier-ignore
    }
  });

  test("that were not there yet when the end of the log was told are left for the next answer", () => {
    expect(spans(Buffer.concat(three()), 0n, { end: 4n })).toEqual(all.slice(0, 4));
    expect(spans(Buffer.concat(three()), 0n, { end: 3n })).toEqual(all.slice(0, 2));
  });

  test("that are damaged and the last of the log end where the log ends", () => {
    const bytes = batchOf([event, event], { firstOffset: 10n });
    bytes.writeInt32BE(2 ** 30, 23);
    expect(spans(bytes, 10n, { end: 14n })).toEqual([[10n, 13n, true]]);
  });

  test("of a transaction that may have ended in what is damaged are set aside, neither delivered nor dropped", () => {
    const of = (firstOffset: bigint, producer: bigint, attributes = 0b1_0000): Buffer => {
      const bytes = batchOf([event], { firstOffset, attributes });
      bytes.writeBigInt64BE(producer, 43);
      bytes.writeUInt32BE(crc32c(bytes.subarray(21)), 17);
      return bytes;
    };
    const [aborted, damaged, doubtful, other, end, next] = [
      of(0n, 7n),
      of(1n, 7n),
      of(2n, 7n),
      of(3n, 8n),
      of(4n, 7n, 0b11_0000),
      of(5n, 7n),
    ];
    damaged[61]! ^= 1;
    const batches = batchesIn(Buffer.concat([aborted, damaged, doubtful, other, end, next]));
    const items = itemsOf({ batches, abortedTransactions: [{ producerId: 7n, firstOffset: 0n }] }, 0n);
    const kinds = items.map(({ record, unreadable }) => (record !== null ? "event" : unreadable === undefined ? "nothing" : "unreadable"));
    expect(kinds).toEqual(["nothing", "unreadable", "unreadable", "event", "nothing", "event"]);
    // Begun behind it, with what lies before for its transactions only.
    const past = itemsOf(
      { batches: batchesIn(Buffer.concat([aborted, end, next])), abortedTransactions: [{ producerId: 7n, firstOffset: 0n }] },
      5n,
    );
    expect(past.map(({ first, record }) => [first, record !== null])).toEqual([[5n, true]]);
  });

  test("of damaged bytes never throw, and never name an offset before the one that was asked for", () => {
    const random = seededRandom(5);
    const options: BatchOptions[] = [{}, { attributes: gzip, pack: (bytes) => gzipSync(bytes) }];
    for (const each of options) {
      const good = batchOf([event, { value: null }, event], each);
      for (let n = 0; n < 2_000; n++) {
        const bytes = Buffer.from(good);
        for (let changes = 1 + Math.floor(random.next() * 3); changes > 0; changes--)
          bytes[Math.floor(random.next() * bytes.length)] = Math.floor(random.next() * 256);
        // With its checksum put right, as a hostile writer would.
        if (n % 2 === 0) bytes.writeUInt32BE(crc32c(bytes.subarray(21)), 17);
        for (const { first, last } of itemsOf({ batches: batchesIn(bytes) }, 1n)) expect(last >= first && first >= 1n).toBe(true);
      }
    }
  });

  test("are unpacked as far as there is room, and what is behind them is fetched again", () => {
    const batches = [0, 1, 2].map((n) => batchOf([{ value: Buffer.alloc(10_000) }], { firstOffset: BigInt(n) }));
    expect(itemsOf({ batches: batchesIn(Buffer.concat(batches)) }, 0n, 15_000)).toHaveLength(2);
    expect(itemsOf({ batches: batchesIn(Buffer.concat(batches)) }, 0n, 1)).toHaveLength(1);
  });

  test("count what a record takes in memory, which is far more than the bytes of a small one", () => {
    const [item] = itemsOf({ batches: batchesIn(batchOf([{ value: null }])) }, 0n);
    expect(item!.bytes).toBeGreaterThanOrEqual(600);
  });
});
