import { randomUUID } from "node:crypto";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { jetstream, jetstreamManager, type JetStreamManager } from "@nats-io/jetstream";
import { nats, type Nats, type NatsOptions } from "../../src/brokers/nats/index.ts";
import type { StoredMessage } from "../../src/conformance/sink.ts";
import type { Envelope } from "../../src/core/event.ts";
import { describeWith, type ServerName } from "../servers/available.ts";
import { startNats, type NatsRecipe, type NatsServer } from "../servers/nats.ts";
import { throughProxy, type Subject } from "./kit/subject.ts";

export const never = new AbortController().signal;

export const outgoing = (events: readonly Envelope[], topic: string) => events.map((envelope) => ({ topic, source: "/test", envelope }));

let last = 0;
const run = randomUUID().slice(0, 8);
/** A topic that no other test has, and no other run. */
export const freshTopic = (name = "order"): string => `${name}.${run}-${(last += 1)}.events`;

export async function using<T>(options: NatsOptions, work: (broker: Nats) => Promise<T>): Promise<T> {
  const broker = nats(options);
  try {
    return await work(broker);
  } finally {
    await broker[Symbol.asyncDispose]();
  }
}

/** Publishes until the topic has all of them: a publish that takes long leaves an aggregate's next events for later. */
export async function storeAll(broker: Nats, topic: string, events: readonly Envelope[]): Promise<void> {
  for (let left = events; left.length > 0;) {
    const results = await broker.publish(outgoing(left, topic), never);
    const wrong = results.filter(({ status }) => status !== "stored" && status !== "skipped");
    if (wrong.length > 0) throw new Error(`not stored: ${JSON.stringify(wrong[0])}`);
    left = left.filter((_, at) => results[at]!.status === "skipped");
  }
}

/** The official client, with nothing of ours in between. */
export async function raw<T>(url: string, work: (nc: NatsConnection, manager: JetStreamManager) => Promise<T>): Promise<T> {
  const nc = await connect({ servers: url.replace(/^\w+:\/\//, ""), maxReconnectAttempts: -1 });
  try {
    return await work(nc, await jetstreamManager(nc));
  } finally {
    await nc.close();
  }
}

/** Everything that a topic holds, as the official client reads it. */
export function storedIn(url: string, topic: string): Promise<readonly StoredMessage[]> {
  return raw(url, async (nc, manager) => {
    const stream = await manager.streams.find(topic);
    const { state } = await manager.streams.info(stream, { subjects_filter: topic });
    const count = state.subjects?.[topic] ?? 0;
    if (count === 0) return [];
    const consumer = await jetstream(nc).consumers.get(stream, { filter_subjects: topic });
    const found: StoredMessage[] = [];
    for await (const message of await consumer.consume()) {
      const pairs = [...(message.headers ?? [])].map(([name, [value = ""]]) => [name, value] as const);
      const attributes = pairs
        .filter(([name]) => name.startsWith("ce-"))
        .map(([name, value]) => [name.slice("ce-".length), decodeURIComponent(value)]);
      found.push({
        attributes: Object.fromEntries(attributes) as Record<string, string>,
        key: message.headers?.get("ce-partitionkey") === undefined ? "" : decodeURIComponent(message.headers.get("ce-partitionkey")),
        headers: Object.fromEntries(pairs.filter(([name]) => !/^(ce-|nats-)/i.test(name))),
        data: new Uint8Array(message.data),
      });
      if (found.length === count) break;
    }
    return found;
  });
}

/** The versions of the server that the adapter is tested on, by the names of test/servers/available.ts. */
const versions = { nats: undefined, nats210: "2.10", natsNewest: "newest" } as const;

/** Starts a server of one version. */
type Start = (recipe?: Omit<NatsRecipe, "version">) => Promise<NatsServer>;

/** `describeWith` once for each version of the server. */
export async function describeEachNats(
  title: string,
  body: (start: Start, subject: Subject) => void,
  beside: readonly ServerName[] = [],
): Promise<void> {
  for (const [name, version] of Object.entries(versions) as [keyof typeof versions, NatsRecipe["version"]][]) {
    const start: Start = (recipe) => startNats({ ...recipe, version });
    await describeWith([...beside, name], `${title} (${version ?? "2.9"})`, () => body(start, subjectOn(start)));
  }
}

const subjectOn = (start: Start): Subject => ({
  name: "nats",
  module: "brokers/nats/index.js",
  start: () => start(),
  open: (url) => nats({ url, connectTimeoutMs: 1_000 }),
  proxied: () => throughProxy(() => start()),
  provision: (url, topics, consumers) => using({ url }, (broker) => broker.provision(topics, consumers)),
  remove: (url, topic) => raw(url, async (_, manager) => void (await manager.streams.delete(await manager.streams.find(topic)))),
  gone: { publishing: /waybill migrate --broker nats:.* --topics/, reading: /waybill migrate --broker/ },
  stored: storedIn,
  async small() {
    const server = await start({ settings: "max_payload: 4096" });
    return {
      url: server.url(),
      bytes: 5_000,
      open: () => nats({ url: server.url() }),
      [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
    };
  },
  silenceMs: 9_000,
  // It drops what has the id of a message of the last two minutes.
  dedupes: true,
});

/** On the machine's own version. */
export const subject = subjectOn(startNats);
