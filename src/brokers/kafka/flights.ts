import type { Outgoing, PublishResult } from "../../contracts/sink.ts";
import { runsOf as aggregateRuns } from "../../core/runs.ts";
import type { Batch, BatchMessage } from "./batch.ts";
import { batchHeadBytes } from "./message.ts";
import { spotKey } from "./spots.ts";
import type { Address } from "../kit/url.ts";

/** A message that can be sent, and where to. */
export interface Ready {
  readonly message: BatchMessage;
  readonly leader: Address;
  readonly bytes: number;
  /** The largest batch that its partition takes. */
  readonly limit: number;
}

/** A batch on its way. */
export interface Flight {
  readonly key: string;
  readonly batch: Batch;
  /** Where its messages stand in what was to be published. */
  readonly indexes: readonly number[];
  readonly bytes: number;
}

/** What is left of an aggregate's messages: their places, the next one last. */
export type AggregateRun = number[];

export const runsOf = (messages: readonly Outgoing[]): readonly AggregateRun[] =>
  aggregateRuns(messages.map(({ envelope }) => envelope)).map((run) => run.reverse());

/** Over all partitions: the client and the brokers keep it in memory. */
const flightBytes = 8 * 1024 * 1024;

/**
 * One batch for each partition: of every run what is next and has one topic, since that goes to one partition, which takes a batch whole or
 * not at all. `limits` are what batches have turned out to be too large for. A message alone is always taken: the broker decides.
 */
export function loadFlights(
  runs: readonly AggregateRun[],
  prepared: readonly (Ready | PublishResult)[],
  limits: ReadonlyMap<string, number>,
): readonly Flight[] {
  const flights = new Map<string, { batch: Batch & { messages: BatchMessage[] }; indexes: number[]; bytes: number; key: string }>();
  let total = 0;
  for (const run of runs) {
    let topic: string | null = null;
    for (const index of run.toReversed()) {
      const ready = prepared[index]!;
      if ("status" in ready || ready.message.topic !== (topic ??= ready.message.topic)) break;
      const { message, leader, bytes } = ready;
      const key = spotKey(topic, message.partition);
      const flight = flights.get(key);
      if (total > 0 && total + bytes > flightBytes) break;
      if (flight === undefined) {
        const batch = { topic, partition: message.partition, leader, messages: [message] };
        flights.set(key, { batch, indexes: [index], bytes: batchHeadBytes + bytes, key });
      } else {
        if (flight.bytes + bytes > Math.min(ready.limit, limits.get(key) ?? Infinity)) break;
        flight.batch.messages.push(message);
        flight.indexes.push(index);
        flight.bytes += bytes;
      }
      total += bytes;
    }
  }
  return [...flights.values()];
}
