import { kafka, type Kafka } from "../../src/brokers/kafka/index.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import type { Envelope } from "../../src/core/event.ts";
import { startKafka } from "../servers/kafka.ts";
import { makeTopic, readTopic, removeTopic } from "./kafka-raw.ts";
import type { Subject } from "./kit/subject.ts";

export const never = new AbortController().signal;

export const many = (count: number, aggregates = 7): Envelope[] =>
  Array.from({ length: count }, (_, i) => sampleEvent({ aggregateId: `order-${i % aggregates}` }));
export const outgoing = (events: readonly Envelope[], topic: string) => events.map((envelope) => ({ topic, source: "/test", envelope }));
export const publish = (broker: Sink, events: readonly Envelope[], topic: string) => broker.publish(outgoing(events, topic), never);

let made = 0;
/** Topics that no other test has, made by hand. */
export async function freshTopics(url: string, partitions = 3): Promise<readonly [string, string]> {
  made += 1;
  const topics = [`order-${process.pid}-${made}.events`, `invoice-${process.pid}-${made}.events`] as const;
  for (const topic of topics) await makeTopic(url, topic, partitions);
  return topics;
}

export const subject: Subject = {
  name: "kafka",
  start: () => startKafka(),
  open: (url) => kafka({ url, timeoutMs: 1_500, sessionMs: 6_000 }),
  async proxied() {
    const server = await startKafka({ proxied: true });
    const proxy = server.proxy!;
    return { server, proxy, url: `kafka://127.0.0.1:${proxy.port}`, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
  },
  async provision(url, topics) {
    const broker: Kafka = kafka({ url, partitions: 4 });
    await broker.provision(topics);
    await broker[Symbol.asyncDispose]();
  },
  remove: (url, topic) => removeTopic(url, topic),
  gone: { publishing: /has no topic/, reading: /has no topic/ },
  stored: (url, topic) => readTopic(url, topic),
  async small(server, topic) {
    await makeTopic(server.url(), topic, 4, { "max.message.bytes": "20000" });
    const url = server.url();
    return { bytes: 20_000, url, open: () => subject.open(url), [Symbol.asyncDispose]: async () => undefined };
  },
  silenceMs: 6_000,
  dedupes: false,
  module: "brokers/kafka/index.js",
};
