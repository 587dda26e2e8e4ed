import { redis, type Redis, type RedisOptions } from "../../src/brokers/redis/index.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { StoredMessage } from "../../src/conformance/sink.ts";
import type { Envelope } from "../../src/core/event.ts";
import { startRedis, type RedisServer } from "../servers/redis.ts";
import { respAt, type Resp } from "../support/resp.ts";
import { storeAll } from "./kit/store.ts";
import { throughProxy, type Broker, type Subject } from "./kit/subject.ts";

export const never = new AbortController().signal;
const topics = ["order.events", "invoice.events"] as const;
export const [topic] = topics;

export const many = (count: number, aggregates = 7): Envelope[] =>
  Array.from({ length: count }, (_, i) => sampleEvent({ aggregateId: `order-${i % aggregates}` }));
export const outgoing = (events: readonly Envelope[], to: string = topic) =>
  events.map((envelope) => ({ topic: to, source: "/test", envelope }));
export const publish = (broker: Sink, events: readonly Envelope[], to?: string) => broker.publish(outgoing(events, to), never);

export const store = (broker: Sink, events: readonly Envelope[], to?: string) => storeAll(broker, outgoing(events, to));

let used = 0;

/** A database of its own, with two empty streams. */
export async function fresh(server: Pick<RedisServer, "port" | "url">) {
  const database = String((used += 1) % 16);
  const made = topics.flatMap((name) => [
    ["XGROUP", "CREATE", name, "none", "$", "MKSTREAM"],
    ["XGROUP", "DESTROY", name, "none"],
  ]);
  await ask(server.port, database, ["FLUSHDB"], ...made);
  const url = server.url(database);
  return { url, database, topics, stored: (of: string) => storedAt(url, of), close: async () => undefined };
}

/** Commands in one database; rejects when one is refused. */
export const ask = (port: number, database: string, ...commands: readonly (readonly string[])[]): Promise<readonly Resp[]> =>
  respAt(`redis://127.0.0.1:${port}/${database}`, ...commands);

/** Everything the stream holds, read without the adapter and without its client. */
export const storedIn = (port: number, database: string, stream: string): Promise<readonly StoredMessage[]> =>
  storedAt(`redis://127.0.0.1:${port}/${database}`, stream);

export async function storedAt(url: string, stream: string): Promise<readonly StoredMessage[]> {
  const [entries] = await respAt(url, ["XRANGE", stream, "-", "+"]);
  return (entries as readonly (readonly [string, readonly string[]])[]).map(([, fields]) => messageOf(fields));
}

function messageOf(fields: readonly string[]): StoredMessage {
  const found = new Map<string, Buffer>();
  for (let i = 0; i < fields.length; i += 2) found.set(fields[i]!, Buffer.from(fields[i + 1]!, "latin1"));
  const under = (prefix: string): Record<string, string> =>
    Object.fromEntries(
      [...found].filter(([name]) => name.startsWith(prefix)).map(([name, value]) => [name.slice(prefix.length), String(value)]),
    );
  const attributes = { ...under("ce_"), datacontenttype: String(found.get("content-type")) };
  return { key: under("ce_")["partitionkey"]!, attributes, headers: under("h_"), data: found.get("data")! };
}

const open = (url: string, more: Partial<RedisOptions> = {}): Broker => redis({ url, timeoutMs: 1_000, ...more });

export const subject: Subject = {
  name: "redis",
  module: "brokers/redis/index.js",
  start: () => startRedis(),
  open: (url) => open(url),
  proxied: () => throughProxy(() => startRedis()),
  provision: (url, topics, consumers) => using(url, (broker) => broker.provision(topics, consumers)),
  remove: async (url, topic) => void (await respAt(url, ["DEL", topic])),
  gone: { publishing: /no stream ".*": provision it first/, reading: /no stream .*provision/ },
  stored: storedAt,
  async small(server) {
    return {
      url: server.url(),
      bytes: 100_000,
      open: () => open(server.url(), { maxBytes: 100_000 }),
      [Symbol.asyncDispose]: async () => undefined,
    };
  },
  silenceMs: 1_000,
  dedupes: false,
};

export async function using<T>(url: string, work: (broker: Redis) => Promise<T>): Promise<T> {
  const broker = redis({ url });
  try {
    return await work(broker);
  } finally {
    await broker[Symbol.asyncDispose]();
  }
}
