import { afterAll, beforeAll, expect, test } from "vitest";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import { startRabbitmq, type RabbitmqServer } from "../servers/rabbitmq.ts";
import { memoryOf } from "./memory.ts";
import { field, long, nested, nestedArrays, propertiesOf, publishRaw, short, text, type RawProperties } from "./rabbitmq-raw.ts";
import { confirmed, describeOn, freshTopic, isNewer, never, outgoing, provision, raw, receiving, using } from "./rabbitmq.ts";

const empty = (count: number): Buffer[] => Array.from({ length: count }, (_, n) => field(n.toString(36), "V"));
const event = (id: string): Buffer[] => [text("cloudEvents:id", id), text("cloudEvents:type", "Paid")];

await describeOn(["rabbitmq", "rabbitmq4"], "rabbitmq: messages that are no events", (on) => {
  let server: RabbitmqServer;
  let url: string;
  beforeAll(async () => {
    server = await startRabbitmq({ ...on, settings: { max_message_size: 134_217_728 } }); // 16 MiB by default from 4 on
    url = server.url();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const hostile: Readonly<Record<string, { readonly properties: RawProperties; readonly why: RegExp }>> = {
    "a table nested 5,000 deep": { properties: { headers: [...event("a"), nested("deep", 5_000)] }, why: /nested more than 32 deep/ },
    "an array nested 5,000 deep": {
      properties: { headers: [...event("b"), nestedArrays("deep", 5_000)] },
      why: /nested more than 32 deep/,
    },
    "an id nested 5,000 deep": { properties: { headers: [nested("cloudEvents:id", 5_000)] }, why: /nested more than 32 deep/ },
    "no properties": { properties: {}, why: /cloudEvents:id/ },
    "a message id, and no attributes": { properties: { messageId: "foreign", contentType: "text/plain" }, why: /cloudEvents:id/ },
    "no type": { properties: { headers: [text("cloudEvents:id", "c")] }, why: /cloudEvents:type/ },
    "an empty id": { properties: { headers: [...event(""), field("v", "V")] }, why: /cloudEvents:id/ },
    "an id that is no text": {
      properties: { headers: [text("cloudEvents:id", Buffer.from([0xff, 0xfe])), text("cloudEvents:type", "Paid")] },
      why: /UTF-8/,
    },
    "an attribute that is no text": {
      properties: { headers: [...event("d"), field("cloudEvents:subject", "x", long(Buffer.from([0xc3, 0x28])))] },
      why: /UTF-8/,
    },
    "25,000 headers": { properties: { headers: [...event("e"), ...empty(25_000)] }, why: /more than 10000 values/ },
    "an array of 100,000 values": {
      properties: { headers: [...event("f"), field("array", "A", long(Buffer.alloc(100_000, "V")))] },
      why: /more than 10000 values/,
    },
  };

  test("each becomes an unreadable delivery with its bytes as they came, and the events behind it are delivered", async () => {
    const topic = freshTopic();
    await provision(url, [topic], ["shop"]);
    const cases = Object.entries(hostile);
    const events = cases.map(() => sampleEvent());
    for (const [i, [, { properties }]] of cases.entries()) {
      await raw(url, async (channel) => publishRaw(channel, "waybill", topic, properties, Buffer.from(`body ${i}`)));
      await using({ url }, (broker) => broker.publish(outgoing([events[i]!], topic), never));
    }
    const { take } = receiving(url, { topics: [topic], prefetch: 2 * cases.length });
    const deliveries = await take(cases.length * 2);
    for (const [i, [about, { properties, why }]] of cases.entries()) {
      const [bad, good] = deliveries.slice(2 * i);
      expect(bad!.unreadable?.why, about).toMatch(why);
      const came = Buffer.concat([propertiesOf(properties), Buffer.from(`body ${i}`)]);
      // From RabbitMQ 4 on, the server writes the table of headers anew, in an order of its own.
      const orderly = (bytes: Uint8Array): Buffer => (isNewer(on) ? Buffer.from(bytes).sort() : Buffer.from(bytes));
      expect(orderly(bad!.unreadable!.raw), about).toEqual(orderly(came));
      expect(good!.unreadable, about).toBeUndefined();
      expect(good!.envelope.id, about).toBe(events[i]!.id);
    }
    const names = deliveries.map(({ envelope }) => envelope.id);
    expect(new Set(names).size).toBe(names.length);
  });

  test("no frame that the server sends ends a receiving: the largest headers, grown on the way, odd routing keys, every property at its end", async () => {
    const topic = freshTopic();
    await provision(url, [topic], ["shop"]);
    const frameMax = 131_072;
    const largest = (id: string): Buffer[] => {
      const own = event(id);
      const taken = Buffer.concat(own).length + 8 + 12 + 2 + 4 + "fill".length + 6;
      return [...own, text("fill", Buffer.alloc(frameMax - taken, 97))];
    };
    // All but expiration and user-id, which the server checks: the highest numbers, and texts of 255 bytes that are not UTF-8.
    const ff = short(Buffer.alloc(255, 0xff));
    const every = Buffer.concat([
      ...[Buffer.from([0xfe, 0xec]), short("application/json"), ff, long(Buffer.concat(event("every"))), Buffer.from([2, 255])],
      ...[ff, ff, ff, Buffer.alloc(8, 0xff), ff, ff, ff],
    ]);
    await raw(url, async (channel) => {
      await channel.bindQueue(`shop.${topic}`, "amq.fanout", "");
      publishRaw(channel, "waybill", topic, { headers: largest("largest") }, Buffer.alloc(0));
      publishRaw(channel, "amq.fanout", Buffer.alloc(255, 0xff), { headers: event("odd key") }, Buffer.from("{}"));
      publishRaw(channel, "waybill", topic, { bytes: every }, Buffer.from("{}"));
      publishRaw(channel, "waybill", topic, { headers: event("last") }, Buffer.from("{}"));
      await channel.checkQueue(`shop.${topic}`);
    });
    // A quorum queue gives what has a high priority first, from RabbitMQ 4 on.
    const expected = isNewer(on) ? ["every", "largest", "odd key", "last"] : ["largest", "odd key", "every", "last"];
    // Given back unread, each has one header more, which makes the frame larger than the two sides have agreed on.
    for (const times of [1, 2, 3, 4]) {
      const { take, broker } = receiving(url, { topics: [topic] });
      const deliveries = await take(expected.length);
      expect(
        deliveries.map(({ envelope, unreadable }) => unreadable?.why ?? envelope.id),
        String(times),
      ).toEqual(expected);
      if (times === 4) for (const delivery of deliveries) await delivery.ack();
      await broker[Symbol.asyncDispose]();
    }
    expect(await raw(url, (channel) => channel.checkQueue(`shop.${topic}`))).toMatchObject({ messageCount: 0 });
  });

  test("200 messages of 4 MiB at the default prefetch stay within the bound in bytes, one larger than it comes alone, and none is lost", async () => {
    const [topic, mib] = [freshTopic(), 1024 * 1024];
    await provision(url, [topic], ["shop"]);
    await raw(url, async (channel) => {
      await channel.deleteQueue(`tap.${topic}`);
    });
    await confirmed(url, (channel) => {
      const headers = (n: number) => ({ "cloudEvents:id": `m${n}`, "cloudEvents:type": "Paid" });
      for (let n = 0; n < 200; n++)
        channel.publish("waybill", topic, Buffer.alloc(n === 100 ? 48 * mib : 4 * mib), { headers: headers(n) });
    });
    const subscription = { consumer: "shop", topics: [topic], prefetch: 256, waiting: 10_000, bytes: 32 * mib };
    const { received, out, peak } = await memoryOf({ url, subscription, messages: 200 });
    expect({ received, out }).toEqual({ received: 200, out: 48 * mib });
    expect(peak).toBeLessThan(400 * mib);
    expect(await raw(url, (channel) => channel.checkQueue(`shop.${topic}`))).toMatchObject({ messageCount: 0 });
  });

  test("headers count by what they take in memory: messages of a few kilobytes with thousands of headers stay within the bound", async () => {
    const [topic, mib] = [freshTopic(), 1024 * 1024];
    await provision(url, [topic], ["shop"]);
    // Every third has more than are read.
    const [tooMany, many] = [Buffer.concat(empty(25_000)), Buffer.concat(empty(9_900))];
    await raw(url, async (channel) => {
      await channel.deleteQueue(`tap.${topic}`);
      for (let n = 0; n < 300; n++)
        publishRaw(channel, "waybill", topic, { headers: [...event(`m${n}`), n % 3 === 0 ? tooMany : many] }, Buffer.from("{}"));
      await channel.checkQueue(`shop.${topic}`);
    });
    const subscription = { consumer: "shop", topics: [topic], prefetch: 256, waiting: 10_000, bytes: 32 * mib };
    const { received, peak } = await memoryOf({ url, subscription, messages: 300 });
    expect(received).toBe(300);
    expect(peak).toBeLessThan(300 * mib);
  });

  test("the text of a nested header counts by its length as JSON", async () => {
    const topic = freshTopic();
    await provision(url, [topic], ["shop"]);
    const headers = [...event("escaped"), field("table", "F", long(text("t", Buffer.alloc(10_000))))];
    await raw(url, async (channel) => publishRaw(channel, "waybill", topic, { headers }, Buffer.from("{}")));
    const { next } = receiving(url, { topics: [topic] });
    expect((await next()).bytes).toBeGreaterThan(60_000);
  });

  test("a backlog beyond the bound in bytes on the first topic keeps no other topic from being read, and a close is answered", async () => {
    const [first, second, mib] = [freshTopic(), freshTopic(), 1024 * 1024];
    await provision(url, [first, second], ["shop"]);
    const headers = (id: string) => ({ "cloudEvents:id": id, "cloudEvents:type": "Paid" });
    await confirmed(url, (channel) => {
      for (let n = 0; n < 40; n++) channel.publish("waybill", first, Buffer.alloc(mib), { headers: headers(`a${n}`) });
      channel.publish("waybill", second, Buffer.from("b"), { headers: headers("b") });
    });
    const { broker, next, take } = receiving(url, { topics: [first, second], prefetch: 256, bytes: 4 * mib });
    const seen = new Set<string>();
    while (seen.size < 41) {
      const { envelope, ack } = await next();
      await ack();
      seen.add(envelope.id);
    }
    await confirmed(url, (channel) => {
      for (let n = 0; n < 20; n++) channel.publish("waybill", first, Buffer.alloc(mib), { headers: headers(`c${n}`) });
    });
    await take(3); // not acknowledged: the connection is not read any more
    await within(5_000, "the close", broker[Symbol.asyncDispose]());
    const after = receiving(url, { topics: [first, second], prefetch: 256 });
    expect((await after.take(20)).map(({ envelope }) => envelope.id)).toEqual(Array.from({ length: 20 }, (_, n) => `c${n}`));
  });
});
