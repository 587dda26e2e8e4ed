import { describe, expect, test } from "vitest";
import { redis } from "../../src/brokers/redis/index.ts";
import { toEnvelope, writeFields } from "../../src/brokers/redis/message.ts";
import { placeOf } from "../../src/brokers/redis/url.ts";
import { ByteWriter } from "../../src/brokers/kit/bytes.ts";
import { writeCommand } from "../../src/brokers/redis/protocol.ts";
import type { Envelope } from "../../src/core/event.ts";
import { comparable, difficultEvents, sampleEvent } from "../../src/conformance/corpus.ts";

describe("redis: the URL", () => {
  test("names the server, who connects, the database, and whether it is encrypted", () => {
    expect(placeOf("redis://localhost")).toEqual({
      ...{ host: "localhost", port: 6379, tls: null, username: null, password: null, database: 0 },
      shown: "redis://localhost:6379/0",
    });
    expect(placeOf("rediss://us%40er:p%3Aw%2Fd@[::1]:7000/12")).toEqual({
      ...{ host: "::1", port: 7000, tls: {}, username: "us@er", password: "p:w/d", database: 12 },
      shown: "rediss://[::1]:7000/12",
    });
    expect(placeOf("redis://:hush@host/")).toMatchObject({ username: null, password: "hush", database: 0 });
    // A user without a password is still somebody.
    expect(placeOf("redis://guest@host")).toMatchObject({ username: "guest", password: "" });
  });

  test("that cannot be used is refused, without its secrets", () => {
    const wrong = [
      ...[
        "",
        "redis:",
        "redis://",
        "http://host",
        "redis://host:99999",
        "redis://a b",
        "redis://u:%zz@host",
        "redis://host/x",
        "redis://u:hush@host/1/2",
      ],
      ...["redis://u:hush@host?tls=1", "redis://u:hush@host?ca=x", "rediss://u:hush@host?cert=x", "rediss://u:hush@host?ca=/no/such/file"],
      ...["redis://u:hush@host#x", "redis://u:hu sh@ho st"],
    ];
    for (const url of wrong) {
      expect(() => redis({ url }), url).toThrow(expect.objectContaining({ code: "BAD_URL" }) as Error);
      expect(() => redis({ url }), url).not.toThrow(/hush|hu sh/);
    }
    for (const options of [
      { url: 5 },
      { url: "redis://h", maxBytes: 0 },
      { url: "redis://h", timeoutMs: -1 },
      { url: "redis://h", replicas: 1.5 },
      null,
    ])
      expect(() => redis(options as never)).toThrow(expect.objectContaining({ code: "INVALID_OPTION" }) as Error);
    expect(() => redis({ url: "redis://h", replica: 3 } as never)).toThrow(/did you mean replicas/);
  });
});

/** What RESP has one after another, each with its length. */
function stringsIn(bytes: Buffer): Buffer[] {
  const strings: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const [head, length] = /^\$(\d+)\r\n/.exec(bytes.toString("latin1", at, at + 20))!;
    const end = at + head.length + Number(length);
    strings.push(bytes.subarray(at + head.length, end));
    expect(bytes.toString("latin1", end, end + 2)).toBe("\r\n");
    at = end + 2;
  }
  return strings;
}

test("redis: a command is its arguments with their lengths in bytes", () => {
  const args = ["", "é", "a".repeat(300), "ü".repeat(300), "\r\n$5\r\n", Buffer.from([0xff, 0]), new Uint8Array()];
  const writer = new ByteWriter(0);
  writeCommand(writer, ["PING"]);
  writeCommand(writer, ["CALL", ...args]);
  const text = writer.written().toString("latin1");
  const first = "*1\r\n$4\r\nPING\r\n";
  expect(text.slice(0, first.length)).toBe(first);
  expect(text.slice(first.length)).toMatch(/^\*8\r\n\$4\r\nCALL\r\n/);
  const strings = stringsIn(Buffer.from(text.slice(first.length + "*8\r\n".length), "latin1"));
  expect(strings.map((one) => one.toString("hex"))).toEqual(["CALL", ...args].map((one) => Buffer.from(one as string).toString("hex")));
});

describe("redis: the fields of an entry", () => {
  const asReply = (fields: readonly string[]): Buffer[] => fields.map((field) => Buffer.from(field));
  const written = (envelope: Envelope) => {
    const writer = new ByteWriter(0);
    const { count, bytes } = writeFields(writer, { topic: "t", source: "/s", envelope });
    const fields = stringsIn(writer.written());
    expect(fields).toHaveLength(count);
    expect(fields.reduce((sum, field) => sum + field.byteLength, 0)).toBe(bytes);
    return fields;
  };

  test("bring every event back as it was", () => {
    for (const [about, event] of difficultEvents()) {
      const back = toEnvelope(written(event));
      expect(comparable(back!), about).toEqual(comparable(event));
    }
  });

  test("keep headers with names of their own apart from attributes and from the language", () => {
    const headers = Object.fromEntries([
      ["__proto__", "x"],
      ["constructor", "y"],
      ["data", "z"],
      ["h_ce_id", "w"],
    ]);
    const event = sampleEvent({ headers });
    const back = toEnvelope(written(event))!;
    expect(Object.entries(back.headers)).toEqual(Object.entries(headers));
    expect(back.id).toBe(event.id);
  });

  test("do not keep what came with them in memory", () => {
    const chunk = Buffer.alloc(64 * 1024);
    const fields = [...asReply(["ce_id", "1", "ce_type", "t", "data"]), chunk.subarray(5, 10)];
    expect(toEnvelope(fields)!.data.buffer.byteLength).toBe(5);
  });

  test("that are no event are said to be none", () => {
    for (const fields of [[], ["ce_id", "1"], ["ce_type", "t"], ["ce_id", "", "ce_type", "t"], ["data"]])
      expect(toEnvelope(asReply(fields))).toBeNull();
    expect(toEnvelope([...asReply(["ce_id", "1", "ce_type", "t", "h_x"]), Buffer.from([0xff])])).toBeNull();
  });
});
