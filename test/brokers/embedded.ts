import { embedded, type Embedded, type EmbeddedOptions } from "../../src/brokers/embedded/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import type { Envelope } from "../../src/core/event.ts";
import { sql } from "./files.ts";

export const never = new AbortController().signal;
export const topics = ["order.events", "invoice.events"] as const;
export const [topic] = topics;

export const outgoing = (events: readonly Envelope[], to: string = topic) =>
  events.map((envelope) => ({ topic: to, source: "/test", envelope }));
export const many = (count: number): Envelope[] => Array.from({ length: count }, (_, i) => sampleEvent({ aggregateId: `order-${i % 7}` }));
export const publish = (broker: Embedded, events: readonly Envelope[], to?: string) => broker.publish(outgoing(events, to), never);
export const ids = (path: string, of: string = topic): unknown[] =>
  sql(path, `SELECT attributes ->> 'id' AS id FROM waybill_broker_messages WHERE topic = ? ORDER BY offset`, of).map(({ id }) => id);

export async function using<T>(options: EmbeddedOptions, work: (broker: Embedded) => Promise<T>): Promise<T> {
  const broker = embedded(options);
  try {
    return await work(broker);
  } finally {
    await broker[Symbol.asyncDispose]();
  }
}

export async function take(
  broker: Embedded,
  count: number,
  subscription: { consumer?: string; topics?: string[]; prefetch?: number; stalls?: number } = {},
): Promise<Delivery[]> {
  const taken: Delivery[] = [];
  const all = { consumer: "reader", topics: [topic], prefetch: 1_000, ...subscription };
  const receiving = async (): Promise<void> => {
    for await (const delivery of broker.receive(all, never)) if (taken.push(delivery) === count) return;
  };
  await within(10_000, `taking ${count}`, receiving());
  return taken;
}
