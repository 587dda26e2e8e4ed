import { connect, type Channel, type GetMessage } from "amqplib";
import { rabbitmq, type Rabbitmq, type RabbitmqOptions } from "../../src/brokers/rabbitmq/index.ts";
import { expect, onTestFinished } from "vitest";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { StoredMessage } from "../../src/conformance/sink.ts";
import type { Delivery, Subscription } from "../../src/contracts/source.ts";
import type { Envelope } from "../../src/core/event.ts";
import { describeWith, type ServerName } from "../servers/available.ts";
import { startRabbitmq } from "../servers/rabbitmq.ts";
import { throughProxy, type Subject } from "./kit/subject.ts";

/** By its name in WAYBILL_REQUIRE, how each version is started. */
const versions = { rabbitmq: {}, rabbitmq4: { version: 4 }, rabbitmqNewest: { version: "newest" } } as const;
export type Version = (typeof versions)[keyof typeof versions];
export const isNewer = (on: Version): boolean => "version" in on;

const names = Object.keys(versions) as (keyof typeof versions)[];
/** npm run test:versions has one version stand in for the others: see scripts/servers.mjs. */
const { rabbitmq: standsIn } = JSON.parse(process.env["WAYBILL_INSTEAD"] || "{}") as { readonly rabbitmq?: 4 | "newest" };
let instead = names.find((name) => standsIn !== undefined && (versions[name] as { version?: unknown }).version === standsIn) ?? null;
/** From now on, tests run on this version in place of theirs: see rabbitmq-newest.long.test.ts. */
export const onlyOn = (name: keyof typeof versions): void => void (instead = name);

/** `describeWith` for each of these versions, and other servers that the tests need. */
export async function describeOn(
  names: readonly (keyof typeof versions)[],
  title: string,
  body: (on: Version) => void,
  others: readonly ServerName[] = [],
): Promise<void> {
  for (const name of instead === null ? names : [instead])
    await describeWith([...others, name], name === "rabbitmq" ? title : `${title}, on ${name}`, () => body(versions[name]));
}

export const never = new AbortController().signal;

export const outgoing = (events: readonly Envelope[], topic: string) => events.map((envelope) => ({ topic, source: "/test", envelope }));

/** Of so many aggregates. */
export const many = (count: number, aggregates = count): Envelope[] =>
  Array.from({ length: count }, (_, i) => sampleEvent({ aggregateId: `order-${i % aggregates}` }));
/** The destination's fault. */
export const refused = (why: RegExp) => ({
  status: "refused",
  blame: "destination",
  retryable: true,
  error: { message: expect.stringMatching(why) as string },
});
export const stored = { status: "stored" };

const run = Date.now().toString(36);
let last = 0;
/** A topic that no other test has, nor an earlier run on the same server. */
export const freshTopic = (name = "order"): string => `${name}.${run}-${(last += 1)}.events`;

export async function using<T>(options: RabbitmqOptions, work: (broker: Rabbitmq) => Promise<T>): Promise<T> {
  const broker = rabbitmq(options);
  try {
    return await work(broker);
  } finally {
    await broker[Symbol.asyncDispose]();
  }
}

/** An open receiving; it is left at the end of the test. */
export function receiving(url: string, subscription: Partial<Subscription> & { readonly topics: readonly string[] }) {
  const broker = rabbitmq({ url, timeoutMs: 20_000 });
  onTestFinished(() => broker[Symbol.asyncDispose]());
  const iterator = broker.receive({ consumer: "shop", prefetch: 20, ...subscription }, never)[Symbol.asyncIterator]();
  const next = async (): Promise<Delivery> => (await within(20_000, "delivery", iterator.next())).value as Delivery;
  const take = async (count: number): Promise<Delivery[]> => {
    const taken: Delivery[] = [];
    while (taken.length < count) taken.push(await next());
    return taken;
  };
  return { broker, iterator, next, take };
}

/** The client, with nothing of ours in between. */
export async function raw<T>(url: string, work: (channel: Channel) => Promise<T>): Promise<T> {
  const connection = await connect(url);
  connection.on("error", () => undefined);
  try {
    const channel = await connection.createChannel();
    channel.on("error", () => undefined);
    const result = await work(channel);
    await channel.close().catch(() => undefined); // the end of the connection would overtake what was sent
    return result;
  } finally {
    await connection.close().catch(() => undefined);
  }
}

/** The same, and everything that was published is stored. */
export async function confirmed(url: string, publish: (channel: Channel) => void): Promise<void> {
  const connection = await connect(url);
  connection.on("error", () => undefined);
  try {
    const channel = await connection.createConfirmChannel();
    // The client's own wait for confirms goes on for ever when the server closes the channel.
    const closed = new Promise<never>((_, reject) => channel.on("error", reject));
    closed.catch(() => undefined);
    publish(channel);
    await Promise.race([channel.waitForConfirms(), closed]);
  } finally {
    await connection.close().catch(() => undefined);
  }
}

/** Beside the consumers' queues: everything that was published to the topic stays in it. */
export const tapOf = (topic: string): string => `tap.${topic}`;

/** Topics with a tap each, and what the adapter makes for the consumers. */
export async function provision(url: string, topics: readonly string[], consumers: readonly string[] = []): Promise<void> {
  await using({ url }, (broker) => broker.provision(topics, consumers));
  await raw(url, async (channel) => {
    for (const topic of topics) {
      await channel.assertQueue(tapOf(topic), { durable: true, arguments: { "x-queue-type": "quorum" } });
      await channel.bindQueue(tapOf(topic), "waybill", topic);
    }
  });
}

/** Everything that the topic's tap holds; it stays there. */
export function storedIn(url: string, topic: string): Promise<readonly StoredMessage[]> {
  return raw(url, async (channel) => {
    const { messageCount } = await channel.checkQueue(tapOf(topic));
    const got: GetMessage[] = [];
    if (messageCount === 0) return [];
    await channel.prefetch(65_535); // a quorum queue gives no more than 2000 at once otherwise
    await new Promise<void>((resolve) => {
      const take = (message: unknown): void => {
        if (got.push(message as GetMessage) === messageCount) resolve();
      };
      void channel.consume(tapOf(topic), take, { noAck: false });
    });
    return got.map(messageOf);
  });
}

function messageOf({ content, properties }: Pick<GetMessage, "content" | "properties">): StoredMessage {
  const pairs = Object.entries(properties.headers ?? {}).map(([name, value]) => [name, String(value)] as const);
  const attributes = pairs.filter(([name]) => name.startsWith("cloudEvents:")).map(([name, value]) => [name.slice(12), value] as const);
  return {
    attributes: { ...Object.fromEntries(attributes), datacontenttype: String(properties.contentType) },
    key: new Map(attributes).get("partitionkey") ?? "",
    headers: Object.fromEntries(pairs.filter(([name]) => !/^(cloudEvents:|x-)/.test(name))),
    data: content,
  };
}

export const subjectOn = (on: Version): Subject => ({
  name: "rabbitmq",
  module: "brokers/rabbitmq/index.js",
  start: () => startRabbitmq(on),
  open: (url) => rabbitmq({ url, timeoutMs: 2_000 }),
  proxied: () => throughProxy(() => startRabbitmq(on)),
  provision,
  remove: (url, topic) =>
    raw(url, async (channel) => {
      for (const queue of [tapOf(topic), `shop.${topic}`]) await channel.deleteQueue(queue);
    }),
  gone: { publishing: /waybill migrate --broker amqp:.* --topics .* --consumers/, reading: /waybill migrate --broker amqp:/ },
  stored: storedIn,
  async small(server) {
    return {
      url: server.url(),
      bytes: 5_000,
      open: () => rabbitmq({ url: server.url(), maxBytes: 4_096 }),
      [Symbol.asyncDispose]: async () => undefined,
    };
  },
  // Three heartbeats of three seconds.
  silenceMs: 10_000,
  dedupes: false,
});

export const subject = subjectOn(versions.rabbitmq);
