import { asError } from "../../../core/errors.ts";
import { tooLarge, unfit } from "../../kit/results.ts";
import type { BatchWriter } from "./batch-writer.ts";
import type { Batch } from "./batch.ts";
import { lotsOf, type Lot, type Sorting } from "./lots.ts";
import { spotKey } from "../reading/spots.ts";

/** A batch on its way. */
export interface Flight {
  readonly batch: Batch;
  /** Its partition. */
  readonly key: string;
  /** Where its messages are in the list to publish. */
  readonly indexes: readonly number[];
}

export interface Loading extends Sorting {
  /** By partition: how large its batches may be, after one was refused. */
  readonly limits: ReadonlyMap<string, number>;
  readonly writer: BatchWriter;
  readonly now: number;
}

/** Over all partitions: the client and the brokers keep it in memory. */
const flightBytes = 8 * 1024 * 1024;

/**
 * One batch for each partition, with as many of its waiting messages as it may hold, in the order given. A partition takes a batch whole or
 * not at all, and all messages of an aggregate in one topic go to one partition. So an aggregate's messages are stored in order, and none
 * is stored after one that is not.
 */
export function loadFlights(loading: Loading): readonly Flight[] {
  const flights: Flight[] = [];
  let total = 0;
  loading.writer.reset();
  for (const lot of lotsOf(loading)) {
    const flight = loadFlight(loading, lot, total);
    if (flight === null) continue;
    flights.push(flight);
    total += flight.batch.bytes.length;
  }
  return flights;
}

function loadFlight(loading: Loading, lot: Lot, before: number): Flight | null {
  const { writer, remainder, limits, now } = loading;
  const { topic, partition, leader } = lot;
  const key = spotKey(topic, partition);
  const most = Math.min(lot.limit, limits.get(key) ?? Infinity);
  const indexes: number[] = [];
  writer.begin();
  for (const index of lot.indexes) {
    // An earlier message of its aggregate may have been refused just now.
    if (!remainder.isWaiting(index) || !write(loading, lot, index)) continue;
    const bytes = writer.batchBytes;
    // A message alone is always taken: the broker decides.
    const fits = (bytes <= most || indexes.length === 0) && (before + bytes <= flightBytes || before + indexes.length === 0);
    if (!fits) {
      writer.undo();
      break;
    }
    indexes.push(index);
  }
  if (indexes.length === 0) return null;
  return { key, indexes, batch: { topic, partition, leader, count: indexes.length, bytes: writer.end(now) } };
}

/** Writes a message into its batch, unless it has to be refused. */
function write({ messages, remainder, writer }: Loading, { topic, limit }: Lot, index: number): boolean {
  const { envelope, source } = messages[index]!;
  try {
    writer.add(envelope, source);
  } catch (error) {
    writer.undo();
    remainder.stop(index, unfit(asError(error)));
    return false;
  }
  if (writer.batchBytes <= limit || writer.aloneBytes <= limit) return true;
  remainder.stop(index, tooLarge(envelope.id, `takes ${writer.aloneBytes} bytes with its headers, and ${topic} takes ${limit}`));
  writer.undo();
  return false;
}
