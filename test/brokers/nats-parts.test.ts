import { describe, expect, test } from "vitest";
import { flightsOf } from "../../src/brokers/nats/flights.ts";
import { nats } from "../../src/brokers/nats/index.ts";
import { readHead } from "../../src/brokers/nats/head.ts";
import { envelopeOf, headersOf, sizeOf } from "../../src/brokers/nats/message.ts";
import { checkSubject, durablePrefix, streamName } from "../../src/brokers/nats/names.ts";
import { resultOf } from "../../src/brokers/nats/result.ts";
import { placeOf, settingsOf } from "../../src/brokers/nats/url.ts";
import { seededRandom } from "../../src/core/random.ts";
import { comparable, difficultEvents, sampleEvent } from "../../src/conformance/corpus.ts";

describe("nats: the URL", () => {
  test("names servers, who connects, and whether it is encrypted", () => {
    expect(settingsOf("nats://localhost")).toEqual({
      addresses: [{ host: "localhost", port: 4222 }],
      user: null,
      password: null,
      token: null,
      credentials: null,
      tls: null,
    });
    expect(settingsOf("tls://us%40er:p%3Aw:d@a:1,[::1]:2,b/")).toMatchObject({
      addresses: [
        { host: "a", port: 1 },
        { host: "::1", port: 2 },
        { host: "b", port: 4222 },
      ],
      user: "us@er",
      password: "p:w:d",
      token: null,
      tls: { ca: null, cert: null, key: null },
    });
    expect(settingsOf("nats://s3cret@host")).toMatchObject({ token: "s3cret", user: null });
  });

  test("that cannot be used is refused, without its secrets", () => {
    const wrong = [
      ...["", "nats:", "nats://", "http://host", "nats://host:99999", "nats://a b", "nats://host/path", "nats://u:%zz@host", "nats://a,,b"],
      ...["nats://u:hush@host?tls=1", "nats://u:hush@host?ca=x", "tls://u:hush@host?cert=x", "tls://u:hush@host?ca=/no/such/file"],
    ];
    for (const url of wrong) {
      expect(() => nats({ url }), url).toThrow(expect.objectContaining({ code: "BAD_URL" }) as Error);
      expect(() => nats({ url }), url).not.toThrow(/hush/);
    }
    expect(() => nats({ url: 5 as never })).toThrow(expect.objectContaining({ code: "INVALID_OPTION" }) as Error);
    expect(() => nats({ url: "nats://host", replica: 3 } as never)).toThrow(/did you mean replicas/);
  });

  test("is shown without whoever connects", () => {
    expect(placeOf(settingsOf("tls://u:hush@host:1,other"))).toBe("tls://host:1");
  });
});

describe("nats: names", () => {
  test("a topic is a subject of words, and none of the server's own", () => {
    for (const topic of ["order.events", "a", "Größe.🚚", "a-b_c.d/e%", "a*b", "x.$y"]) checkSubject(topic, "ROUTE_FAILED");
    const wrong = [
      "",
      ".",
      "a.",
      ".a",
      "a..b",
      "a.*",
      "a.>",
      "*",
      ">",
      "a b",
      "a\tb",
      "a\nb",
      "$JS.API.STREAM.DELETE.x",
      "$SYS.x",
      "_INBOX.x",
    ];
    for (const topic of wrong)
      expect(() => checkSubject(topic, "ROUTE_FAILED"), topic).toThrow(expect.objectContaining({ code: "ROUTE_FAILED" }) as Error);
  });

  test("streams and durables are named so that JetStream takes it, and no two topics share one", () => {
    expect(streamName("order.events")).toBe("order_events");
    const topics = ["a.b", "a_b", "a-b", "a/b", "a\\b", "A.b", "a.b.c", "a_b.c", "a.b_c", "é", "🚚", "x".repeat(255), "x".repeat(254)];
    const names = topics.map(streamName);
    expect(new Set(names).size).toBe(topics.length);
    const durables = topics.flatMap((topic) => ["shop", "sh.op", "sh_op"].map((consumer) => durablePrefix(consumer, topic)));
    expect(new Set(durables).size).toBe(topics.length * 3);
    for (const name of [...names, ...durables]) expect(name).toMatch(/^[\w-]{1,200}$/);
  });
});

describe("nats: the message", () => {
  const source = "/test";
  const message = (event: Parameters<typeof comparable>[0]) => {
    const lines = headersOf({ topic: "t", source, envelope: event }).map(([name, value]) => `${name}: ${value}\r\n`);
    return { head: readHead(Buffer.from(`NATS/1.0\r\n${lines.join("")}\r\n`)), data: event.data };
  };

  test("carries every event there and back", () => {
    for (const [about, event] of difficultEvents()) expect(comparable(envelopeOf(message(event))!), about).toEqual(comparable(event));
  });

  test("has a first line that takes no longer to read for being long: a regular expression took minutes for 2 KB", () => {
    const spaces = " ".repeat(1_000_000);
    expect(readHead(Buffer.from(`NATS/1.0 100${spaces}\nx\r\n\r\n`))).toMatchObject({ status: 100, readable: true });
    expect(readHead(Buffer.from(`NATS/1.0${spaces}\r\na: b\r\n\r\n`))).toMatchObject({ status: 0, headers: [["a", "b"]] });
    expect(readHead(Buffer.from("NATS/1.0 409 Consumer Deleted\r\n\r\n"))).toMatchObject({ status: 409, description: "Consumer Deleted" });
    expect(readHead(Buffer.from("NATS/1.0 4099\r\n\r\n"))).toMatchObject({ status: 0 });
  });

  test("has attributes in printable ASCII, percent-encoded as CloudEvents has it, and the user's headers as they are", () => {
    const event = sampleEvent({ type: 'Euro € 😀 "%"', headers: { tenant: "Zoë %41" } });
    const headers = new Map(headersOf({ topic: "t", source, envelope: event }));
    expect(headers.get("ce-type")).toBe("Euro%20%E2%82%AC%20%F0%9F%98%80%20%22%25%22");
    expect(headers.get("tenant")).toBe("Zoë %41");
    expect(headers.get("Nats-Msg-Id")).toBe(event.id);
  });

  test("of somebody else is read as far as it is an event", () => {
    const read = (...lines: string[]) => envelopeOf({ head: readHead(Buffer.from(lines.join("\r\n"))), data: new Uint8Array() });
    const first = "NATS/1.0";
    expect(read("")).toBeNull();
    expect(read(first, "ce-id: 1")).toBeNull();
    expect(read(first, "ce-id: 1", "ce-type: %C0%A0")).toBeNull();
    expect(read(first, "ce-id: 1", "ce-type: a", "Ce-Id: 2"), "two ids").toBeNull();
    expect(read("HTTP/1.0", "ce-id: 1", "ce-type: a")).toBeNull();
    const odd = ["a header: with a space", "no colon", ": no name", "ding\u0007: x", "many: 1", "many: 2", "__proto__: p"];
    expect(read(`${first} 409 Consumer Deleted`, "Ce-Id: 1", 'CE-TYPE: "a \\"b\\""', "Nats-Msg-Id: x", ...odd)).toMatchObject({
      id: "1",
      type: 'a "b"',
      headers: { many: "1, 2", "a header": "with a space" },
    });
  });

  test("has headers that can be any bytes: none of them throws", () => {
    const random = seededRandom(7);
    for (let i = 0; i < 2_000; i++) {
      const bytes = Buffer.from(Array.from({ length: Math.floor(random.next() * 60) }, () => Math.floor(random.next() * 256)));
      const head = readHead(i % 2 === 0 ? bytes : Buffer.concat([Buffer.from("NATS/1.0 "), bytes]));
      expect(head.status).toBeLessThan(1_000);
      envelopeOf({ head, data: bytes });
    }
    expect(readHead(Buffer.from("NATS/1.0\r\n" + "a: b\r\n".repeat(20_000))).readable).toBe(false);
  });

  test("of a letter is told apart from its event, and from another consumer's letter", () => {
    const ids = ["", "left", "right"].map((consumer) => {
      const headers = consumer === "" ? {} : { "waybill-dead-consumer": consumer, "waybill-dead-at": "2030-01-01" };
      return new Map(headersOf({ topic: "t", source, envelope: sampleEvent({ id: "1", headers }) })).get("Nats-Msg-Id");
    });
    expect(new Set(ids).size).toBe(3);
  });

  test("is measured as the server does", () => {
    expect(sizeOf([["a", "é"]], new Uint8Array(3))).toBe(Buffer.byteLength("NATS/1.0\r\na: é\r\n\r\n") + 3);
  });
});

describe("nats: the answer", () => {
  const verdict = (text: string) =>
    resultOf(
      {
        is: "answer",
        message: { subject: "i", reply: "", head: readHead(new Uint8Array()), data: Buffer.from(text), raw: Buffer.from(text) },
      },
      { topic: "t", source: "/test", envelope: sampleEvent() },
      "S",
      "nats://host:1",
    );

  test("is the stream's own, or says nothing", () => {
    expect(verdict('{"stream":"S","seq":7}')).toEqual({ status: "stored" });
    expect(verdict('{"stream":"S","seq":7,"duplicate":true,"domain":"d"}')).toEqual({ status: "stored" });
    for (const text of [
      "",
      "thanks",
      "{}",
      "null",
      "[]",
      '{"stream":"other","seq":1}',
      '{"stream":"S","seq":0}',
      '{"stream":"S","seq":"1"}',
    ])
      expect(verdict(text), text).toMatchObject({ status: "unknown", error: { code: "PUBLISH_UNKNOWN" } });
  });

  test("with an error is judged by its number", () => {
    const error = (code: number) => verdict(JSON.stringify({ error: { code: 400, err_code: code, description: "message size exceeds" } }));
    for (const code of [10054, 10097])
      expect(error(code)).toMatchObject({ status: "refused", blame: "event", retryable: false, error: { code: "MESSAGE_TOO_LARGE" } });
    for (const code of [10023, 10047, 10060, 10077, 10109, 99999])
      expect(error(code)).toMatchObject({ status: "refused", blame: "destination", error: { code: "DESTINATION_UNAVAILABLE" } });
  });
});

test("a publish has no more under way than 2 MiB and 1,024 messages, and a larger message goes alone", () => {
  const envelopes = [1_000_000, 1_000_000, 1_000_000, 5_000_000, 10, 10].map((size, n) =>
    sampleEvent({ aggregateId: `order-${n}`, data: new Uint8Array(size) }),
  );
  const batch = envelopes.map((envelope) => ({ topic: "t", source: "/", envelope }));
  expect(flightsOf(batch, [[0], [1], [2], [3], [4], [5]])).toEqual([[[0], [1]], [[2]], [[3]], [[4], [5]]]);
  const many = Array.from({ length: 1_500 }, (_, n) => [n % 2 === 0 ? 4 : 5]);
  expect(flightsOf(batch, many).map(({ length }) => length)).toEqual([1_024, 476]);
});
