import { describe, expect, test } from "vitest";
import { framesOf } from "../../src/brokers/nats/frames.ts";
import { nats } from "../../src/brokers/nats/index.ts";
import { readHead } from "../../src/brokers/nats/head.ts";
import { envelopeOf, writeHead } from "../../src/brokers/nats/message.ts";
import { checkSubject, durablePrefix, streamName } from "../../src/brokers/nats/names.ts";
import { plainAckOf, resultOf } from "../../src/brokers/nats/result.ts";
import { ByteWriter } from "../../src/brokers/kit/bytes.ts";
import { createRequests, type NatsAnswer, type Requests } from "../../src/brokers/nats/requests.ts";
import { placeOf, settingsOf } from "../../src/brokers/nats/url.ts";
import { systemClock } from "../../src/core/clock.ts";
import type { Envelope } from "../../src/core/event.ts";
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
      replicas: null,
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
    expect(settingsOf("nats://a,b,c?replicas=3")).toMatchObject({ replicas: 3 });
  });

  test("that cannot be used is refused, without its secrets", () => {
    const wrong = [
      ...["", "nats:", "nats://", "http://host", "nats://host:99999", "nats://a b", "nats://host/path", "nats://u:%zz@host", "nats://a,,b"],
      ...["", "0", "-1", "1.5", "three", "3&replicas=5"].map((count) => `nats://u:hush@host?replicas=${count}`),
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
  const linesOf = (envelope: Envelope): string => {
    const writer = new ByteWriter(0);
    writeHead(writer, { topic: "t", source, envelope });
    return writer.written().toString();
  };
  const message = (event: Envelope) => ({
    head: readHead(Buffer.from(`NATS/1.0\r\n${linesOf(event)}\r\n`)),
    data: event.data,
  });
  const headersOf = (event: Envelope) => new Map(message(event).head.headers);

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
    const headers = headersOf(event);
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
      return headersOf(sampleEvent({ id: "1", headers })).get("Nats-Msg-Id");
    });
    expect(new Set(ids).size).toBe(3);
  });

  test("has headers that begin no line of their own: such an event is refused", () => {
    const hostile = [
      { a: "b\r\nNats-Rollup: all" },
      { a: "b\n" },
      { a: "\r" },
      { "a: b\r\nc": "d" },
      { "a:b": "c" },
      { "a b": "c" },
      { é: "c" },
    ];
    for (const headers of hostile)
      expect(() => linesOf(sampleEvent({ headers })), JSON.stringify(headers)).toThrow(
        expect.objectContaining({ code: "INVALID_HEADER" }) as Error,
      );
    const lines = linesOf(sampleEvent({ id: "a\r\nb", aggregateId: "c\r\nNats-Rollup: all", type: "d\n" })).split("\r\n");
    expect(lines.filter((line) => !/^(Nats-Msg-Id|ce-[a-z]+): /.test(line))).toEqual([""]);
  });

  const heading = { subject: "t.ü", stream: "Ü", inbox: "_INBOX.x", number: 9, maxBytes: 1_000_000 };
  const framed = (events: readonly Envelope[], maxBytes = heading.maxBytes) => {
    const unfit: [number, unknown][] = [];
    const messages = events.map((envelope) => ({ topic: "t.ü", source, envelope }));
    const frames = framesOf({ ...heading, maxBytes }, messages, (number, error) => unfit.push([number, error]));
    return { text: Buffer.from(frames).toString(), unfit };
  };
  const commandOf = (event: Envelope, number: number): string => {
    const head = `NATS/1.0\r\nNats-Expected-Stream: Ü\r\n${linesOf(event)}\r\n`;
    const data = Buffer.from(event.data).toString();
    return `HPUB t.ü _INBOX.x.${number} ${Buffer.byteLength(head)} ${Buffer.byteLength(head) + event.data.byteLength}\r\n${head}${data}\r\n`;
  };

  test("is one whole command among others, with a reply of its own number", () => {
    const events = [
      sampleEvent({ data: new Uint8Array() }),
      sampleEvent({ headers: { tenant: "Zoë", empty: "", long: "é".repeat(3_000) }, aggregateId: "ß" }),
      sampleEvent({ data: new Uint8Array(100_000).fill(0x61) }),
      sampleEvent(),
    ];
    const { text, unfit } = framed(events);
    expect(text).toBe(events.map((event, i) => commandOf(event, 9 + i)).join(""));
    expect(unfit).toEqual([]);
  });

  test("that cannot be sent leaves no byte among the others, and they keep their numbers", () => {
    const events = [
      sampleEvent({ headers: { a: "b\nc" } }),
      sampleEvent(),
      sampleEvent({ createdAt: new Date(Number.NaN) }),
      sampleEvent({ data: new Uint8Array(10_000) }),
      sampleEvent(),
    ];
    const { text, unfit } = framed(events, 5_000);
    expect(text).toBe(commandOf(events[1]!, 10) + commandOf(events[4]!, 13));
    expect(unfit).toMatchObject([
      [9, { code: "INVALID_HEADER" }],
      [11, { name: "RangeError" }],
      [12, { code: "MESSAGE_TOO_LARGE" }],
    ]);
  });

  test("is measured as the server does, to the byte", () => {
    const event = sampleEvent({ headers: { tenant: "Zoë" } });
    const bytes = Number(/^HPUB \S+ \S+ \d+ (\d+)/.exec(commandOf(event, 9))![1]);
    expect(framed([event], bytes).unfit).toEqual([]);
    expect(framed([event], bytes - 1)).toMatchObject({ text: "", unfit: [[9, { code: "MESSAGE_TOO_LARGE" }]] });
  });
});

describe("nats: the answer", () => {
  const to = { topic: "t", stream: "S", place: "nats://host:1" };
  const verdict = (text: string) => resultOf(Buffer.from(text), "1", to);

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

  test("that nearly every message gets is recognised without reading it, and no other", () => {
    const isPlainAck = (stream: string, text: string): boolean => plainAckOf(stream)(Buffer.from(text));
    expect(isPlainAck("S", '{"stream":"S", "seq":7}')).toBe(true);
    expect(isPlainAck("S", '{"stream":"S","seq":1234567890}')).toBe(true);
    expect(isPlainAck('Ü"\\', `{"stream":${JSON.stringify('Ü"\\')},"seq":7}`)).toBe(true);
    const others = [
      ...['{"stream":"S", "seq":0}', '{"stream":"S", "seq":}', '{"stream":"S", "seq":07}', '{"stream":"S", "seq":-7}'],
      ...['{"stream":"S", "seq":7,"duplicate": true}', '{"stream":"S", "seq":7}}', '{"stream":"S", "seq":7} ', '{"stream":"S", "seq":7'],
      ...['{"stream":"T", "seq":7}', '{"stream":"SS", "seq":7}', '{"error":{"err_code":10077},"stream":"S","seq":7}', "", "{}"],
    ];
    for (const text of others) expect(isPlainAck("S", text), text).toBe(false);
    expect(plainAckOf("S")({ is: "silence", error: new Error("late") })).toBe(false);
  });
});

describe("nats: answers by number", () => {
  const clock = { ...systemClock, monotonic: () => 0 };
  const awaited = { begin: () => () => undefined };
  const flightOf = (requests: Requests, subject: string, count: number, sent = (_: number): void => undefined) => {
    const answers: (NatsAnswer | undefined)[] = Array.from({ length: count }, () => undefined);
    let landed = false;
    const done = requests.begin(subject, count, sent, (answer, place) => {
      expect(answers[place], "once").toBeUndefined();
      answers[place] = answer;
    });
    void done.then(() => (landed = true));
    return { answers, done, landed: () => landed };
  };
  const [one, two, three] = [1, 2, 3].map((n) => Buffer.from([n])) as [Buffer, Buffer, Buffer];

  test("each goes to its own place, in whatever order they come, and a second one or an unknown number to none", async () => {
    const requests = createRequests(clock, awaited);
    let first = 0;
    const a = flightOf(requests, "a", 2, (number) => void (first = number));
    const b = flightOf(requests, "b", 2);
    requests.answered(first + 3, three);
    requests.answered(first + 1, two);
    requests.answered(first + 1, one);
    requests.answered(first + 4, one);
    requests.answered(first - 1, one);
    requests.answered(Number.NaN, one);
    await Promise.resolve();
    expect([a.landed(), b.landed()]).toEqual([false, false]);
    requests.answered(first, one);
    await a.done;
    expect(a.answers).toEqual([one, two]);
    expect(b.answers).toEqual([undefined, three]);
    expect(b.landed()).toBe(false);
  });

  test("a refusal goes to the first message of its subject that has no answer", async () => {
    const requests = createRequests(clock, awaited);
    const [a, b] = [flightOf(requests, "a", 1), flightOf(requests, "b", 3)];
    const error = new Error("Permissions Violation");
    requests.answered(2, one);
    requests.refused("b", error);
    requests.refused("c", error);
    requests.refused("b", error);
    await b.done;
    expect(b.answers).toEqual([one, { is: "forbidden", error }, { is: "forbidden", error }]);
    expect(a.answers).toEqual([undefined]);
  });

  test("the end of the connection answers everything, and what is begun after it is not sent", async () => {
    const requests = createRequests(clock, awaited);
    const a = flightOf(requests, "a", 2);
    requests.answered(2, two);
    const over = { is: "silence", error: new Error("over") } as const;
    requests.end(over);
    const b = flightOf(requests, "b", 1, () => expect.unreachable());
    await Promise.all([a.done, b.done]);
    expect([a.answers, b.answers]).toEqual([[over, two], [over]]);
  });

  test("what cannot be written is unsent, and what was asked long ago is silence", async () => {
    let now = 0;
    const requests = createRequests({ ...clock, monotonic: () => now }, awaited);
    const error = new Error("closed");
    const a = flightOf(requests, "a", 2, () => {
      throw error;
    });
    await a.done;
    expect(a.answers).toEqual([1, 2].map(() => ({ is: "unsent", error })));
    const b = flightOf(requests, "b", 1);
    now = 59_000;
    requests.sweep();
    const c = flightOf(requests, "c", 1);
    now = 61_000;
    requests.sweep();
    await b.done;
    expect(b.answers).toMatchObject([{ is: "silence" }]);
    expect(c.answers).toEqual([undefined]);
  });
});
