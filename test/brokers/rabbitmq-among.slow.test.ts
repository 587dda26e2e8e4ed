import { connect, type ConfirmChannel } from "amqplib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { seededRandom } from "../../src/core/random.ts";
import { memory } from "../../src/memory.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { startRabbitmq, type RabbitmqServer } from "../servers/rabbitmq.ts";
import { field, long, nested, nestedArrays, publishRaw, text, type RawProperties } from "./rabbitmq-raw.ts";
import { describeOn, freshTopic, many, never, outgoing, provision, raw, stored } from "./rabbitmq.ts";

type Chance = (most: number) => number;

/** One hostile message, of a kind that chance chooses; ids of good ones among them, in places where no id is read. */
function hostileOf(chance: Chance, good: string): { readonly properties: RawProperties; readonly body: Buffer } {
  const event = (id: string | Buffer): Buffer[] => [text("cloudEvents:id", id), text("cloudEvents:type", "Hostile")];
  const own = `hostile-${chance(1e9)}`;
  const bytes = (length: number): Buffer => Buffer.from(Array.from({ length }, () => chance(256)));
  const kinds: readonly (() => RawProperties)[] = [
    () => ({}),
    () => ({ messageId: good }),
    () => ({ messageId: good, headers: [nested("deep", 1_000 + chance(8_000))] }),
    () => ({ headers: [...event(own), nestedArrays("deep", 33 + chance(5_000))] }),
    () => ({ headers: [...event(own), nested("x-deep", 5_000)] }),
    () => ({ headers: [text("cloudEvents:id", good)] }),
    () => ({ headers: event("") }),
    () => ({ headers: event(Buffer.concat([Buffer.from(good), Buffer.from([0xff])])) }),
    () => ({ headers: event(`${good}\0`) }),
    () => ({ headers: event(own.repeat(30)) }),
    () => ({ headers: [field("cloudEvents:id", "F", long(text("id", good))), text("cloudEvents:type", "Hostile")] }),
    () => ({
      headers: [...event(own), field("cloudEvents:time", "T", Buffer.alloc(8, 0xff)), field("cloudEvents:sequence", "d", bytes(8))],
    }),
    () => ({ headers: [...event(own), text("__proto__", "x"), text("constructor", "y"), text("waybill-dead-reason", "z")] }),
    () => ({ headers: [...event(own), ...Array.from({ length: 5_000 }, (_, n) => field(`h${n}`, "t", Buffer.from([1])))] }),
    () => ({
      headers: [...event(own), field("cloudEvents:subject", "x", long(bytes(40)))],
      contentType: bytes(100).toString("latin1").slice(0, 120),
    }),
    () => ({ headers: [...event(own), text(bytes(20), bytes(50))], messageId: bytes(30) }),
  ];
  return { properties: kinds[chance(kinds.length)]!(), body: bytes(chance(200)) };
}

await describeOn(["rabbitmq"], "rabbitmq: good messages among hostile ones", (on) => {
  let server: RabbitmqServer;
  let url: string;
  beforeAll(async () => {
    server = await startRabbitmq(on);
    url = server.url();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  test.for([1, 2, 3])("every good one is handled, once, and every hostile one ends visible: seed %i", async (seed) => {
    const random = seededRandom(seed);
    const chance: Chance = (most) => Math.floor(random.next() * most);
    const topic = freshTopic();
    await provision(url, [topic], ["shop"]);
    await using store = memory();
    await using broker = rabbitmq({ url, timeoutMs: 20_000 });
    const handled: string[] = [];
    const ends: PathEvent[] = [];
    const visible: readonly PathEvent["type"][] = ["subscriber.handled", "subscriber.ignored", "subscriber.died"];
    const subscriber = createSubscriber({
      ...{ consumer: "shop", source: broker, inbox: store, topics: [topic], retry: { delaysMs: [10] } },
      observe: (event) => void (visible.includes(event.type) && ends.push(event)),
      handlers: {
        "*": (event) => {
          if (event.type === "Hostile" && chance(3) === 0) throw new Error("the handler does not like it");
          handled.push(event.id);
        },
      },
    });
    await subscriber.start();
    const good = many(60, 7);
    const connection = await connect(url);
    let hostile = 0;
    try {
      const channel = await connection.createConfirmChannel();
      for (const event of good) {
        for (let n = chance(3); n > 0; n--, hostile++) await publishOne(channel, topic, hostileOf(chance, event.id));
        expect(await broker.publish(outgoing([event], topic), never)).toEqual([stored]);
      }
    } finally {
      await connection.close();
    }
    await expect.poll(() => ends.length, { timeout: 60_000 }).toBeGreaterThanOrEqual(good.length + hostile);
    const ids = new Set(good.map(({ id }) => id));
    expect(handled.filter((id) => ids.has(id)).toSorted()).toEqual([...ids].toSorted());
    await subscriber.drain();
    expect(await raw(url, (channel) => channel.checkQueue(`shop.${topic}`))).toMatchObject({ messageCount: 0 });
    expect(ends).toHaveLength(good.length + hostile);
  });
});

/** Stored, or refused with the channel's end. */
function publishOne(channel: ConfirmChannel, topic: string, { properties, body }: ReturnType<typeof hostileOf>): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (work: () => void): void => {
      channel.removeAllListeners("ack").removeAllListeners("error");
      work();
    };
    channel.once("ack", () => settle(resolve));
    channel.once("error", (error: Error) => settle(() => reject(error)));
    publishRaw(channel, "waybill", topic, properties, body);
  });
}
