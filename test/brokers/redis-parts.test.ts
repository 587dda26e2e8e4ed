import { describe, expect, test } from "vitest";
import { redis } from "../../src/brokers/redis/index.ts";
import { bytesIn, toEnvelope, toFields } from "../../src/brokers/redis/message.ts";
import { placeOf } from "../../src/brokers/redis/url.ts";
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

describe("redis: the fields of an entry", () => {
  const asReply = (fields: ReturnType<typeof toFields>): Buffer[] => fields.map((field) => Buffer.from(field as string));

  test("bring every event back as it was", () => {
    for (const [about, event] of difficultEvents()) {
      const back = toEnvelope(asReply(toFields({ topic: "t", source: "/s", envelope: event })));
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
    const back = toEnvelope(asReply(toFields({ topic: "t", source: "/s", envelope: event })))!;
    expect(Object.entries(back.headers)).toEqual(Object.entries(headers));
    expect(back.id).toBe(event.id);
  });

  test("do not keep what came with them in memory", () => {
    const chunk = Buffer.alloc(64 * 1024);
    const fields = [...asReply(["ce_id", "1", "ce_type", "t", "data"]), chunk.subarray(5, 10)];
    expect(toEnvelope(fields)!.data.buffer.byteLength).toBe(5);
  });

  test("are counted as the bytes that travel", () => {
    expect(bytesIn(["ü", Buffer.alloc(3), ""])).toBe(5);
  });

  test("that are no event are said to be none", () => {
    for (const fields of [[], ["ce_id", "1"], ["ce_type", "t"], ["ce_id", "", "ce_type", "t"], ["data"]])
      expect(toEnvelope(asReply(fields))).toBeNull();
    expect(toEnvelope([...asReply(["ce_id", "1", "ce_type", "t", "h_x"]), Buffer.from([0xff])])).toBeNull();
  });
});
