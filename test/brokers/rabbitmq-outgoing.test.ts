import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Connection, Listener } from "../../src/brokers/rabbitmq/driver.ts";
import { envelopeOf } from "../../src/brokers/rabbitmq/message.ts";
import { framesOf } from "../../src/brokers/rabbitmq/outgoing.ts";
import { openPublisher, type Publisher } from "../../src/brokers/rabbitmq/publisher.ts";
import { propertiesOf } from "../../src/brokers/rabbitmq/tables.ts";
import { comparable, difficultEvents, sampleEvent } from "../../src/conformance/corpus.ts";
import { toAttributes } from "../../src/core/cloudevents.ts";
import type { Envelope } from "../../src/core/event.ts";
import { propertiesOf as rawProperties } from "./rabbitmq-raw.ts";

const resolve = createRequire(import.meta.url);
const inClient = (file: string): unknown => resolve(join(dirname(resolve.resolve("amqplib")), "lib", file));
const { encodeMethod, encodeProperties, BasicPublish, BasicProperties } = inClient("defs.js") as {
  readonly encodeMethod: (method: number, channel: number, fields: object) => Buffer;
  readonly encodeProperties: (properties: number, channel: number, size: number, fields: object) => Buffer;
  readonly BasicPublish: number;
  readonly BasicProperties: number;
};
const { makeBodyFrame } = inClient("frame.js") as { readonly makeBodyFrame: (channel: number, body: Buffer) => Buffer };

const code = (expected: string): Error => expect.objectContaining({ code: expected }) as Error;

describe("rabbitmq: messages", () => {
  const route = { channel: 5, exchange: "waybill", topic: "größe.events", frameMax: 4_096, maxBytes: 1_000_000 };
  const framed = (events: readonly Envelope[], maxBytes = route.maxBytes) => {
    const unfit: [number, Error][] = [];
    const messages = events.map((envelope) => ({ topic: route.topic, source: "/s", envelope }));
    const bytes = framesOf({ ...route, maxBytes }, messages, (place, error) => unfit.push([place, error]));
    return { bytes: Buffer.from(bytes), unfit };
  };
  const refusal = (change: Partial<Envelope>): Error | undefined => framed([sampleEvent(change)]).unfit[0]?.[1];

  test("are byte for byte what the client itself would write", () => {
    const headers = { tenant: "Zoë 😀", empty: "", long: "é".repeat(3_000), [`h${"é".repeat(127)}`]: "v" };
    const events = [
      ...difficultEvents().map(([, event]) => event),
      sampleEvent({ headers, idempotencyKey: "k", aggregateId: "ß".repeat(200), createdAt: new Date(-5) }),
      ...[0, 1, 4_087, 4_088, 4_089, 100_000].map((bytes) => sampleEvent({ data: new Uint8Array(bytes).fill(7) })),
    ];
    for (const event of events) expect(framed([event]).bytes.toString("hex"), event.id).toBe(byClient(route, event).toString("hex"));
    expect(framed(events).bytes.equals(Buffer.concat(events.map((event) => byClient(route, event))))).toBe(true);
  });

  test("come back as they went", () => {
    for (const [about, event] of difficultEvents()) {
      const { bytes } = framed([event]);
      const header = bytes.subarray(bytes.readUInt32BE(3) + 8);
      const raw = Buffer.from(header.subarray(7 + 12, 7 + header.readUInt32BE(3)));
      const content = Buffer.from(event.data);
      expect(comparable(envelopeOf({ properties: propertiesOf(raw), content }) as Envelope), about).toEqual(comparable(event));
    }
    expect(envelopeOf({ properties: propertiesOf(rawProperties({})), content: Buffer.from("x") })).toMatch(/no cloudEvents:id/);
  });

  test("that AMQP cannot carry are refused for what they are", () => {
    for (const name of ["cloudEvents:id", "cloudEvents_x", "CC", "BCC", "x-delay", "__proto__"])
      expect(refusal({ headers: Object.fromEntries([[name, "v"]]) }), name).toEqual(code("RESERVED_HEADER"));
    expect(refusal({ headers: { [`h${"é".repeat(127)}`]: "v" } })).toBeUndefined();
    expect(refusal({ headers: { ["é".repeat(128)]: "v" } })).toEqual(code("INVALID_HEADER"));
    expect(refusal({ headers: { big: "x".repeat(60_000) } })).toEqual(code("INVALID_HEADER"));
    for (const change of [{ type: "é".repeat(128) }, { id: "x".repeat(256) }, { contentType: "x".repeat(256) }])
      expect(refusal(change)).toEqual(code("INVALID_DRAFT"));
    expect(refusal({ data: Buffer.alloc(1_000_000) })).toEqual(code("MESSAGE_TOO_LARGE"));
  });

  test("that cannot be sent leave no byte among the others", () => {
    const events = [sampleEvent({ headers: { CC: "x" } }), sampleEvent(), sampleEvent({ createdAt: new Date(Number.NaN) }), sampleEvent()];
    const { bytes, unfit } = framed(events);
    expect(bytes.equals(Buffer.concat([byClient(route, events[1]!), byClient(route, events[3]!)]))).toBe(true);
    expect(unfit.map(([place]) => place)).toEqual([0, 2]);
  });
});

/** A message's frames, put together by the client's encoder. */
function byClient({ channel, exchange, topic, frameMax }: Parameters<typeof framesOf>[0], envelope: Envelope): Buffer {
  const content = Buffer.from(envelope.data);
  const { datacontenttype: contentType, ...attributes } = toAttributes(envelope, "/s");
  const named = Object.entries(attributes).map(([name, value]) => [`cloudEvents:${name}`, value]);
  const properties = {
    ...{ contentType, deliveryMode: 2, messageId: envelope.id, type: envelope.type },
    timestamp: Math.max(0, Math.floor(envelope.createdAt.getTime() / 1_000)),
    headers: { ...Object.fromEntries(named), ...envelope.headers } as object,
  };
  const method = { ticket: 0, exchange, routingKey: topic, mandatory: true, immediate: false };
  const bodies: Buffer[] = [];
  const most = frameMax - 8;
  for (let at = 0; at < content.length; at += most) bodies.push(makeBodyFrame(channel, content.subarray(at, at + most)));
  return Buffer.concat([
    encodeMethod(BasicPublish, channel, method),
    encodeProperties(BasicProperties, channel, content.length, properties),
    ...bodies,
  ]);
}

describe("rabbitmq: confirmations", () => {
  /** A publisher on a channel that the test answers for. */
  async function publishing(work: (at: { publisher: Publisher; listener: Listener; lose(error: Error): void }) => Promise<void>) {
    const ended = new AbortController();
    let listener: Listener | undefined;
    const openPublishing = async (given: Listener) => {
      listener = given;
      return { ended: ended.signal, number: 1, frameMax: 4_096, write: () => undefined, close: async () => undefined };
    };
    const publisher = await openPublisher({ openPublishing, await: () => () => undefined } as unknown as Connection, {
      ...{ exchange: "waybill", topic: "t", maxBytes: 10_000 },
      ready: async () => undefined,
    });
    await work({ publisher, listener: listener!, lose: (error) => ended.abort(error) });
  }
  const fly = (publisher: Publisher, events: readonly Envelope[]) => {
    const fates: (string | undefined)[] = events.map(() => undefined);
    let landed = false;
    const messages = events.map((envelope) => ({ topic: "t", source: "/", envelope }));
    const done = publisher.fly(messages, (fate, place) => {
      expect(fates[place], "once").toBeUndefined();
      fates[place] = fate.is;
    });
    void done.then(() => (landed = true));
    return { fates, done, landed: () => landed };
  };
  const events = (count: number): Envelope[] => Array.from({ length: count }, () => sampleEvent());

  test("are each message's own, one by one or all up to a number, and over several writes", () =>
    publishing(async ({ publisher, listener }) => {
      const [a, b] = [fly(publisher, events(3)), fly(publisher, events(3))];
      listener.confirmed({ as: "ack", tag: 2, multiple: false });
      listener.confirmed({ as: "nack", tag: 5, multiple: false });
      listener.confirmed({ as: "ack", tag: 5, multiple: false });
      expect([a.fates, b.fates]).toEqual([
        [undefined, "stored", undefined],
        [undefined, "nacked", undefined],
      ]);
      expect([publisher.pending, publisher.heard]).toEqual([4, 2]);
      listener.confirmed({ as: "ack", tag: 4, multiple: true });
      await a.done;
      expect([a.fates, b.fates]).toEqual([
        ["stored", "stored", "stored"],
        ["stored", "nacked", undefined],
      ]);
      expect(b.landed()).toBe(false);
      listener.confirmed({ as: "nack", tag: 6, multiple: true });
      await b.done;
      expect(b.fates).toEqual(["stored", "nacked", "nacked"]);
      expect([publisher.pending, publisher.heard]).toEqual([0, 6]);
    }));

  test("a message that cannot be sent takes no number, and its neighbours' answers stay theirs", () =>
    publishing(async ({ publisher, listener }) => {
      const a = fly(publisher, [sampleEvent(), sampleEvent({ headers: { CC: "x" } }), sampleEvent()]);
      const b = fly(publisher, events(1));
      listener.confirmed({ as: "ack", tag: 1, multiple: false });
      listener.confirmed({ as: "nack", tag: 2, multiple: false });
      listener.confirmed({ as: "ack", tag: 3, multiple: false });
      expect([a.fates, b.fates]).toEqual([["stored", "unfit", "nacked"], ["stored"]]);
      await Promise.all([a.done, b.done]);
    }));

  test("a message that came back has no queue, though the server confirms it; and the end of the channel answers the rest", () =>
    publishing(async ({ publisher, listener, lose }) => {
      const [one, two, three] = events(3) as [Envelope, Envelope, Envelope];
      const a = fly(publisher, [one, two, three]);
      listener.returned(two.id, "NO_ROUTE (312)");
      listener.confirmed({ as: "ack", tag: 2, multiple: true });
      expect(a.fates).toEqual(["stored", "returned", undefined]);
      lose(new Error("over"));
      await a.done;
      expect(a.fates).toEqual(["stored", "returned", "lost"]);
      const b = fly(publisher, [one]);
      await b.done;
      expect(b.fates).toEqual(["unsent"]);
    }));
});
