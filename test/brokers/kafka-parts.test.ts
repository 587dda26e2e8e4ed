import { describe, expect, test } from "vitest";
import {
  decodeAssignment,
  decodeSubscription,
  encodeAssignment,
  encodeSubscription,
  share,
} from "../../src/brokers/kafka/reading/assignment.ts";
import { codes, isPassing, KafkaRefusal, verdictOf } from "../../src/brokers/kafka/codes.ts";
import { kafka } from "../../src/brokers/kafka/index.ts";
import type { RecordBatch } from "../../src/brokers/kafka/reading/batches.ts";
import { envelopeOf, type StoredRecord } from "../../src/brokers/kafka/message.ts";
import { murmur2, partitionOf } from "../../src/brokers/kafka/reading/partition.ts";
import { itemsOf } from "../../src/brokers/kafka/reading/records.ts";
import { judge } from "../../src/brokers/kafka/examine.ts";
import { createDirectory } from "../../src/brokers/kafka/topics.ts";
import { settingsOf } from "../../src/brokers/kafka/url.ts";
import { systemClock } from "../../src/core/clock.ts";
import type { Envelope } from "../../src/core/event.ts";

const none = { sasl: null, tls: null };

describe("kafka: the URL", () => {
  test("names the brokers, who connects and how, and whether it is encrypted", () => {
    expect(settingsOf("kafka://localhost")).toEqual({
      ...none,
      addresses: [{ host: "localhost", port: 9092 }],
      shown: "kafka://localhost:9092",
    });
    expect(settingsOf("kafkas://us%40er:p%3Aw%2Fd@[::1]:7000,b/?sasl=SCRAM-SHA-512")).toEqual({
      addresses: [
        { host: "::1", port: 7000 },
        { host: "b", port: 9092 },
      ],
      sasl: { mechanism: "SCRAM-SHA-512", user: "us@er", password: "p:w/d" },
      tls: {},
      shown: "kafkas://[::1]:7000,b:9092",
    });
    expect(settingsOf("kafka://u:p@h?sasl=plain&tls=true")).toMatchObject({
      sasl: { mechanism: "PLAIN" },
      tls: {},
      shown: "kafkas://h:9092",
    });
    expect(settingsOf("kafka://h?tls=false")).toMatchObject(none);
  });

  test("that cannot be used is refused, without its secrets", () => {
    const wrong = [
      ...["", "kafka:", "kafka://", "http://h", "kafka://h:99999", "kafka://h,,h2", "kafka://h:1:2", "kafka://h/topic", "kafka://h#x"],
      ...["kafka://u:hush@h", "kafka://u:hush@h?sasl=gssapi", "kafka://h?sasl=plain", "kafka://u:%zzhush@h?sasl=plain"],
      ...["kafka://u:hush@h?sasl=plain&user=x", "kafka://u:hush@h?sasl=plain&ca=x", "kafkas://u:hush@h?sasl=plain&cert=x"],
      ...["kafkas://u:hush@h?sasl=plain&ca=/no/such/file", "kafkas://h?tls=false", "kafka://h?tls=yes"],
    ];
    for (const url of wrong) {
      expect(() => kafka({ url }), url).toThrow(expect.objectContaining({ code: "BAD_URL" }) as Error);
      expect(() => kafka({ url }), url).not.toThrow(/hush/);
    }
    for (const options of [
      { url: 5 },
      { url: "kafka://h", maxBytes: 0 },
      { url: "kafka://h", partitions: 1.5 },
      { url: "kafka://h", sessionMs: 0 },
      null,
    ])
      expect(() => kafka(options as never)).toThrow(expect.objectContaining({ code: "INVALID_OPTION" }) as Error);
    expect(() => kafka({ url: "kafka://h", replica: 3 } as never)).toThrow(/did you mean replicas/);
  });
});

const raw = Buffer.alloc(1);

describe("kafka: a message", () => {
  test("of somebody else is no event", () => {
    const header = (name: string, value: string) => [Buffer.from(name), Buffer.from(value)] as const;
    const read = (headers: StoredRecord["headers"], value: Buffer | null = null) => envelopeOf({ value, headers, raw });
    expect(read([], Buffer.from("{}"))).toMatch(/no ce_id/);
    expect(read([])).toMatch(/no ce_id/);
    expect(read([header("ce_id", ""), header("ce_type", "t")])).toMatch(/no ce_id/);
    expect(read([[Buffer.from([0xff]), null], header("ce_id", "1"), header("ce_type", "t")])).toMatch(/not UTF-8/);
    expect(read([header("ce_id", "1"), header("ce_type", "t")])).toMatchObject({
      id: "1",
      data: new Uint8Array(0),
    });
  });

  test("does not keep what came with it in memory", () => {
    const header = (name: string) => [Buffer.from(name), Buffer.from("1")] as const;
    const value = Buffer.alloc(64 * 1024).subarray(5, 10);
    expect((envelopeOf({ value, headers: [header("ce_id"), header("ce_type")], raw }) as Envelope).data.buffer.byteLength).toBe(5);
  });
});

describe("kafka: partitions", () => {
  test("are those that Java's partitioner chooses", () => {
    // From the tests of Kafka's own clients.
    const known = {
      "21": -973932308,
      foobar: -790332482,
      "a-little-bit-long-string": -985981536,
      "a-little-bit-longer-string": -1486304829,
      lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8: -58897971,
      abc: 479470107,
    };
    for (const [key, hash] of Object.entries(known)) expect(murmur2(Buffer.from(key)), key).toBe(hash);
    expect(partitionOf(Buffer.from("21"), 6)).toBe((-973932308 & 0x7fffffff) % 6);
  });

  test("are shared in ranges, each topic among those who asked for it, and the shares can be written and read", () => {
    const members = [
      { id: "b", topics: ["x", "y"] },
      { id: "a", topics: ["x"] },
      { id: "c", topics: ["y", "z"] },
    ];
    const shares = share(members, new Map([["x", 5], ["y", 1], ["nobody", 3]])); // prettier-ignore
    expect(shares.get("a")).toEqual(new Map([["x", [0, 1, 2]]]));
    expect(shares.get("b")).toEqual(new Map([["x", [3, 4]], ["y", [0]]])); // prettier-ignore
    expect(shares.get("c")).toEqual(new Map());
    for (const own of shares.values()) expect(decodeAssignment(encodeAssignment(own))).toEqual(own);
    expect(decodeSubscription(encodeSubscription(["x", "دفتر"]))).toEqual(["x", "دفتر"]);
    expect(decodeAssignment(Buffer.alloc(0))).toEqual(new Map());
  });
});

describe("kafka: what was fetched", () => {
  const record = (offsetDelta: number) => ({ offsetDelta, value: Buffer.from("x"), headers: [], raw });
  const batch = (firstOffset: bigint, count: number, attributes = 0, producerId = -1n, kept = [...Array(count).keys()]) => ({
    ...{ firstOffset, lastOffsetDelta: count - 1, attributes, producerId, records: kept.map(record) },
  });
  const spans = (items: ReturnType<typeof itemsOf>) =>
    items.map(({ first, last, record: found }) => [Number(first), Number(last), found !== null]);
  const fetched = (batches: readonly RecordBatch[], aborted: readonly [bigint, bigint][] = []) => ({
    batches,
    abortedTransactions: aborted.map(([producerId, firstOffset]) => ({ producerId, firstOffset })),
  });

  test("begins where it was asked to, and leaves no offset out", () => {
    expect(spans(itemsOf(fetched([batch(0n, 5)]), 3n))).toEqual([[3, 3, true], [4, 4, true]]); // prettier-ignore
    // Compacted: 1 and 3 are gone.
    expect(spans(itemsOf(fetched([batch(0n, 4, 0, -1n, [0, 2])]), 0n))).toEqual([[0, 0, true], [1, 2, true], [3, 3, false]]); // prettier-ignore
    expect(itemsOf(fetched([batch(0n, 3)]), 3n)).toEqual([]);
    expect(itemsOf({ batches: [] }, 3n)).toEqual([]);
  });

  test("has nothing of a transaction that was called off, and all of the next one of the same producer", () => {
    const [transactional, control] = [16, 48];
    const log = [
      ...[batch(0n, 2, transactional, 7n), batch(2n, 1, transactional, 8n), batch(3n, 1, control, 7n), batch(4n, 1, transactional, 7n)],
      ...[batch(5n, 1, control, 8n), batch(6n, 1)],
    ];
    expect(spans(itemsOf(fetched(log, [[7n, 0n]]), 0n))).toEqual([
      ...[[0, 1, false], [2, 2, true], [3, 3, false], [4, 4, true], [5, 5, false], [6, 6, true]], // prettier-ignore
    ]);
    // Fetched from the middle of it.
    expect(spans(itemsOf(fetched(log, [[7n, 0n]]), 1n))[0]).toEqual([1, 1, false]);
  });
});

describe("kafka: codes", () => {
  test("say what became of a batch, and those we do not know say nothing", () => {
    const table = {
      stored: [0],
      size: [10, 18],
      event: [87, 32],
      moved: [3, 5, 6, 74, 75, 100],
      sequence: [45, 47, 48, 49, 52, 59, 90],
      destination: [17, 19, 29, 31, 35, 44, 53],
      // Timed out, or written by too few; a number from tomorrow.
      unknown: [7, 20, 46, 56, -1, 9_999],
    };
    for (const [verdict, list] of Object.entries(table)) for (const code of list) expect(verdictOf(code), String(code)).toBe(verdict);
    expect(isPassing(codes.NOT_COORDINATOR)).toBe(true);
    expect(isPassing(codes.TOPIC_AUTHORIZATION_FAILED)).toBe(false);
    expect(new KafkaRefusal(19, "here", "too few").message).toBe("here: NOT_ENOUGH_REPLICAS (19): too few");
    expect(new KafkaRefusal(9_999, "here")).toMatchObject({ code: "DESTINATION_UNAVAILABLE", message: "here: error 9999" });
  });
});

test("kafka: settings that break a promise are named with it", () => {
  const verdicts = (name: string, values: readonly string[]) =>
    values.map((value) => {
      const topics = [{ name: "t", replicas: 3, settings: { [name]: value } }];
      return judge({ topics, broker: {}, maxBytes: 1_048_576 }).find(({ setting }) => setting === `${name} of t`)!.breaks;
    });
  expect(verdicts("min.insync.replicas", ["1", "2"])).toEqual(["L", ""]);
  expect(verdicts("unclean.leader.election.enable", ["true", "false"])).toEqual(["LO", ""]);
  expect(verdicts("cleanup.policy", ["compact", "delete", "compact,delete"])).toEqual(["L", "", "L"]);
  expect(verdicts("retention.ms", ["3600000", "604800000", "-1"])).toEqual(["L", "", ""]);
  expect(verdicts("retention.bytes", ["1000", "-1"])).toEqual(["L", ""]);
  expect(verdicts("max.message.bytes", ["1000", "1048588"])).toEqual(["I", ""]);
});

describe("kafka: the directory of topics", () => {
  test("has a topic that somebody forgets while another one is looked up", async () => {
    let look = Promise.resolve();
    const topicOf = (name: string) => ({ name, id: name, partitions: [{ leader: 1, replicas: 1 }] });
    const brokers = new Map([[1, { host: "h", port: 1 }]]);
    const link = {
      ...{ clock: systemClock, shown: "kafka://h" },
      look: async (names: readonly string[]) => look.then(() => ({ brokers, topics: new Map(names.map((name) => [name, topicOf(name)])) })),
      open: async () => ({ ask: async () => ({ results: [] }) }),
    };
    const directory = createDirectory(link as never, null);
    const { signal } = new AbortController();
    await directory.find(["known"], signal);
    let go = (): void => undefined;
    look = new Promise<void>((resolve) => (go = resolve));
    const found = directory.find(["known", "new"], signal);
    directory.forget("known"); // by a publish that was told of another leader
    go();
    expect([...(await found)].map(([name, place]) => [name, place instanceof Error])).toEqual([
      ["known", false],
      ["new", false],
    ]);
  });
});
