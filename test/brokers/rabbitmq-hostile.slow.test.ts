import { afterAll, beforeAll, expect, test } from "vitest";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import { describeWith } from "../servers/available.ts";
import { startRabbitmq, type RabbitmqServer } from "../servers/rabbitmq.ts";
import { memoryOf } from "./memory.ts";
import { field, long, nested, nestedArrays, propertiesOf, publishRaw, text, type RawProperties } from "./rabbitmq-raw.ts";
import { confirmed, freshTopic, never, outgoing, provision, raw, receiving, using } from "./rabbitmq.ts";

const event = (id: string): Buffer[] => [text("cloudEvents:id", id), text("cloudEvents:type", "Paid")];

await describeWith("rabbitmq", "rabbitmq: messages that are no events", () => {
  let server: RabbitmqServer;
  let url: string;
  beforeAll(async () => {
    server = await startRabbitmq();
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
    const { take } = receiving(url, { topics: [topic] });
    const deliveries = await take(cases.length * 2);
    for (const [i, [about, { properties, why }]] of cases.entries()) {
      const [bad, good] = deliveries.slice(2 * i);
      expect(bad!.unreadable?.why, about).toMatch(why);
      expect(Buffer.from(bad!.unreadable!.raw), about).toEqual(Buffer.concat([propertiesOf(properties), Buffer.from(`body ${i}`)]));
      expect(good!.unreadable, about).toBeUndefined();
      expect(good!.envelope.id, about).toBe(events[i]!.id);
    }
    const names = deliveries.map(({ envelope }) => envelope.id);
    expect(new Set(names).size).toBe(names.length);
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
