import { describe, expect, test } from "vitest";
import { LogUnreadable } from "../../../src/core/log-unreadable.ts";
import { seededRandom } from "../../../src/core/random.ts";
import { createDecoder } from "../../../src/stores/postgres/log/decode.ts";
import { createFrames } from "../../../src/stores/postgres/log/frames.ts";
import { fields } from "../../../src/stores/postgres/log/relation.ts";

const types = [25, 23, 20, 1184, 17];
const int = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
};
const short = (value: number): Buffer => int(value).subarray(2);
const long = (value: bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(value);
  return bytes;
};
const named = (text: string): Buffer => Buffer.from(`${text}\0`);
const ours = { schema: "public", table: "outbox" };

const begin = Buffer.concat([Buffer.from("B"), long(0x1_0000_0010n), long(0n), int(731)]);
const commit = Buffer.concat([Buffer.from("C\0"), long(0x1_0000_0010n), long(0x1_0000_0040n), long(0n)]);
const relation = (more: readonly (readonly [string, number])[] = [], table = "outbox"): Buffer => {
  const columns = [...fields.map(([name, kind]) => [name, types[kind]!] as const), ...more];
  return Buffer.concat([
    Buffer.from("R"),
    int(16_400),
    named("public"),
    named(table),
    Buffer.from("d"),
    short(columns.length),
    ...columns.flatMap(([name, type]) => [Buffer.from([0]), named(name), int(type), int(-1)]),
  ]);
};
const value = (bytes: Buffer): Buffer => Buffer.concat([Buffer.from("b"), int(bytes.length), bytes]);
const absent = Buffer.from("n");
const row: Readonly<Record<string, Buffer>> = {
  seq: value(long(7n)),
  id: value(Buffer.from("id-7")),
  aggregate_type: value(Buffer.from("Order")),
  aggregate_id: value(Buffer.from("7")),
  event_type: value(Buffer.from("Placed")),
  event_version: value(int(1)),
  payload: value(Buffer.from("{}")),
  content_type: value(Buffer.from("application/json")),
  headers: value(Buffer.from("{}")),
  created_at: value(long(0n)),
  status: value(Buffer.from("PENDING")),
  retry_count: value(int(0)),
};
const insert = (changed: Readonly<Record<string, Buffer>> = {}, more: readonly Buffer[] = []): Buffer =>
  Buffer.concat([
    Buffer.from("I"),
    int(16_400),
    Buffer.from("N"),
    short(fields.length + more.length),
    ...fields.map(([name]) => changed[name] ?? row[name] ?? absent),
    ...more,
  ]);
const decode = (...messages: readonly Buffer[]) => {
  const decoder = createDecoder(ours, "0/0");
  for (const message of messages) decoder.take(message, 0, message.length);
  return decoder.give();
};
const failure = (...messages: readonly Buffer[]): unknown => {
  try {
    decode(...messages);
    return null;
  } catch (error) {
    return error;
  }
};

describe("messages of the log", () => {
  test("become transactions, with their positions", () => {
    const { transactions, end } = decode(begin, relation(), insert(), commit);
    expect(end).toBe("1/40");
    expect(transactions).toMatchObject([
      { xid: "731", commit: "1/10", end: "1/40", events: [{ failures: 0, envelope: { seq: 7n, id: "id-7" } }] },
    ]);
    expect(transactions[0]!.events[0]!.envelope.createdAt).toEqual(new Date("2000-01-01T00:00:00Z"));
  });

  test("of columns that are not ours are skipped, and a table that changes is read by its new description", () => {
    const wide = relation([
      ["tenant", 25],
      ["place", 600],
    ]);
    const { transactions } = decode(
      begin,
      relation(),
      insert(),
      wide,
      insert({}, [value(Buffer.from("somebody")), value(Buffer.alloc(16))]),
      insert({}, [absent, absent]),
      commit,
    );
    expect(transactions[0]!.events).toHaveLength(3);
  });

  test("of other tables, and updates, deletes and truncates of ours, are no events", () => {
    const other = Buffer.concat([Buffer.from("I"), int(16_401), Buffer.from("N"), short(0)]);
    const described = relation([], "other");
    described.writeInt32BE(16_401, 1);
    const others = ["U", "D", "T", "O", "Y", "M"].map((kind) => Buffer.from(`${kind}whatever`));
    expect(decode(begin, described, other, ...others, commit)).toEqual({ transactions: [], end: "1/40" });
  });

  test("that lack a column of ours, or have it in another type, are refused in words", () => {
    const narrow = relation();
    narrow.write("qed", narrow.indexOf("seq\0"));
    expect(failure(begin, narrow)).toMatchObject({
      trouble: "publication",
      message: expect.stringMatching(/does not have its columns seq/) as string,
    });
    const retyped = relation();
    retyped.writeInt32BE(23, retyped.indexOf("seq\0") + 4);
    expect(failure(begin, retyped)).toMatchObject({ trouble: "publication", message: expect.stringMatching(/seq has a type/) as string });
  });

  test("in a wrong order are refused: rows without a table or a transaction, transactions inside another", () => {
    for (const wrong of [
      [insert()],
      [begin, insert()],
      [commit],
      [begin, begin],
      [relation(), insert()],
      [begin, Buffer.from("S")],
      [Buffer.alloc(0)],
    ])
      expect(failure(...wrong)).toMatchObject({ trouble: "damaged" });
  });

  const messages = { begin, commit, relation: relation([["tenant", 25]]), insert: insert() };
  test.each(Object.entries(messages))("that end too early are refused: %s", (kind, whole) => {
    for (let length = 1; length < whole.length; length++) {
      const before = kind === "begin" ? [] : kind === "insert" ? [begin, relation()] : [begin];
      expect(failure(...before, whole.subarray(0, length)), `${length} of ${whole.length}`).toBeInstanceOf(LogUnreadable);
    }
  });

  test("that were damaged in one to four places are read or refused, and never anything else", () => {
    const random = seededRandom(7);
    let [read, refused] = [0, 0];
    for (let tries = 0; tries < 8_000; tries++) {
      const sent = [begin, messages.relation, insert({}, [absent]), commit].map((message) => Buffer.from(message));
      for (let times = 1 + Math.floor(random.next() * 4); times > 0; times--) {
        const message = sent[Math.floor(random.next() * sent.length)]!;
        message[Math.floor(random.next() * message.length)] = Math.floor(random.next() * 256);
      }
      const error = failure(...sent);
      if (error === null) read++;
      else if (error instanceof LogUnreadable) refused++;
      else throw error as Error;
    }
    expect(read).toBeGreaterThan(500);
    expect(refused).toBeGreaterThan(500);
  });
});

describe("frames", () => {
  const framed = (type: string, body: Buffer): Buffer => Buffer.concat([Buffer.from(type), int(body.length + 4), body]);
  const bodies = [
    Buffer.alloc(0),
    Buffer.from("a"),
    Buffer.alloc(3_000, "b"),
    Buffer.alloc(0),
    Buffer.alloc(200_000, "c"),
    Buffer.from("d"),
  ];
  const stream = Buffer.concat(bodies.map((body) => framed("d", body)));

  test.each([1, 2, 3, 4, 5, 6, 7, 1_000, 65_536, stream.length])("are whole when the bytes come %s at a time", (size) => {
    const got: Buffer[] = [];
    const frames = createFrames((type, bytes, from, to) => {
      expect(type).toBe(0x64);
      got.push(Buffer.from(bytes.subarray(from, to)));
    });
    for (let at = 0; at < stream.length; at += size) frames.take(stream.subarray(at, at + size));
    expect(got.map((body) => body.toString())).toEqual(bodies.map((body) => body.toString()));
    expect(frames.arriving()).toBe(0);
  });

  test("tell how large the message is that arrives", () => {
    const frames = createFrames(() => undefined);
    const message = framed("d", Buffer.alloc(1_000_000));
    frames.take(message.subarray(0, 5));
    frames.take(message.subarray(5, 900));
    expect(frames.arriving()).toBe(1_000_005);
    frames.take(message.subarray(900));
    expect(frames.arriving()).toBe(0);
  });

  test.each([1, 7, 1_000, 65_536])("keep only the beginning of a message that is too large, when the bytes come %s at a time", (size) => {
    const got: (readonly [length: number, cut: boolean])[] = [];
    const frames = createFrames((_, bytes, from, to, cut) => got.push([to - from, cut]), 10_000);
    for (let at = 0; at < stream.length; at += size) frames.take(stream.subarray(at, at + size));
    expect(got).toEqual(bodies.map((body) => (body.length > 10_000 ? [65_536 - 5, true] : [body.length, false])));
    expect(frames.arriving()).toBe(0);
  });

  test("with a length that no message has are refused, wherever the bytes are cut", () => {
    for (const length of [0, 3, 2 ** 30 + 1, -1])
      for (const cut of [1, 4, 5]) {
        const bad = Buffer.concat([Buffer.from("d"), int(length | 0), Buffer.from("x")]);
        const frames = createFrames(() => undefined);
        expect(() => {
          frames.take(bad.subarray(0, cut));
          frames.take(bad.subarray(cut));
        }).toThrow(RangeError);
      }
  });
});
