import type { Attributes } from "../../core/cloudevents.ts";
import type { Wake } from "../../core/wake.ts";

/** A message, with the columns of the embedded broker's row. */
export interface Message {
  readonly offset: number;
  readonly topic: string;
  readonly key: string;
  readonly attributes: Attributes;
  readonly headers: Readonly<Record<string, string>>;
  readonly data: Uint8Array;
  readonly storedAt: Date;
}

/** What outlives a handle: the messages of each topic, and where each consumer stands in it. */
export interface Log {
  last: number;
  readonly topics: Map<string, Message[]>;
  /** By topic, then by consumer: the offset up to which everything is acknowledged. */
  readonly consumers: Map<string, Map<string, number>>;
  /** One per open receiving; a publish wakes them. */
  readonly wakes: Set<Wake>;
}

export function createLog(): Log {
  return { last: 0, topics: new Map(), consumers: new Map(), wakes: new Set() };
}

/** The next messages after each topic's cursor, in the order they were stored, over all topics at most `limit`. */
export function readAfter(log: Log, cursors: ReadonlyMap<string, number>, limit: number): readonly Message[] {
  const found = [...cursors].flatMap(([topic, cursor]) => {
    const messages = log.topics.get(topic) ?? [];
    const from = firstAfter(messages, cursor);
    return messages.slice(from, from + limit);
  });
  return found.sort((a, b) => a.offset - b.offset).slice(0, limit);
}

function firstAfter(messages: readonly Message[], offset: number): number {
  let low = 0;
  for (let high = messages.length; low < high;) {
    const middle = (low + high) >> 1;
    if (messages[middle]!.offset > offset) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Where the consumer continues. From now on, purge keeps messages that it has not acknowledged. */
export function start(log: Log, consumer: string, topic: string): number {
  const consumers = log.consumers.get(topic) ?? new Map<string, number>();
  log.consumers.set(topic, consumers);
  const offset = consumers.get(consumer) ?? 0;
  consumers.set(consumer, offset);
  return offset;
}

/** How many messages follow the consumer's acknowledged offset; null for a consumer that never received from the topic. */
export function undone(log: Log, consumer: string, topic: string): number | null {
  const offset = log.consumers.get(topic)?.get(consumer);
  if (offset === undefined) return null;
  const messages = log.topics.get(topic) ?? [];
  return messages.length - firstAfter(messages, offset);
}

export function advance(log: Log, consumer: string, topic: string, offset: number): void {
  const consumers = log.consumers.get(topic)!;
  consumers.set(consumer, Math.max(offset, consumers.get(consumer) ?? 0));
}

export function purge(log: Log, before: Date): number {
  let purged = 0;
  for (const [topic, messages] of log.topics) {
    const floor = Math.min(Infinity, ...(log.consumers.get(topic)?.values() ?? []));
    const kept = messages.filter(({ offset, storedAt }) => offset > floor || storedAt >= before);
    purged += messages.length - kept.length;
    log.topics.set(topic, kept);
  }
  return purged;
}
