import type { Unreadable } from "../../../contracts/source.ts";
import { control, transactional, type RecordBatch } from "./batches.ts";
import type { StoredRecord } from "../message.ts";

/** What lies in a partition from `first` to `last`: a message at `last`, something that cannot be read, or nothing for us. */
export interface LogItem {
  readonly first: bigint;
  readonly last: bigint;
  readonly record: StoredRecord | null;
  readonly unreadable?: Unreadable;
  readonly bytes: number;
}

interface Answered {
  readonly batches: Iterable<RecordBatch>;
  readonly abortedTransactions?: readonly { readonly producerId: bigint; readonly firstOffset: bigint }[] | null;
}

/**
 * The committed messages of an answer from an offset on, and the gaps between them, so that every offset is in one of the items. The last
 * batch is the one that brings them to `most` bytes: later batches are fetched again.
 */
export function itemsOf({ batches, abortedTransactions }: Answered, from: bigint, most = Infinity): readonly LogItem[] {
  const items: LogItem[] = [];
  const aborted = (abortedTransactions ?? []).toSorted((a, b) => Number(a.firstOffset - b.firstOffset));
  const off = new Set<bigint>();
  /** Producers of an aborted transaction whose end may be in a damaged batch. */
  const doubtful = new Set<bigint>();
  let next = from;
  let bytes = 0;
  for (const batch of batches) {
    const last = batch.firstOffset + BigInt(batch.lastOffsetDelta);
    while (aborted.length > 0 && aborted[0]!.firstOffset <= last) {
      const { producerId } = aborted.shift()!;
      off.add(producerId);
      doubtful.delete(producerId);
    }
    if (batch.damaged === true) for (const producerId of off) doubtful.add(producerId);
    const ofTransaction = (batch.attributes & transactional) !== 0;
    // A transaction's end: later batches of its producer belong to another transaction.
    const isEnd = (batch.attributes & control) !== 0;
    if (isEnd) {
      off.delete(batch.producerId);
      doubtful.delete(batch.producerId);
    }
    if (last < from) continue;
    if (isEnd) {
      // Nothing for us.
    } else if (ofTransaction && doubtful.has(batch.producerId) && batch.unreadable === undefined) {
      const raw = Buffer.concat(batch.records.map((record) => record.raw));
      items.push({ first: next, last, record: null, unreadable: { why: undecided, raw }, bytes: raw.length });
      bytes += raw.length;
      next = last + 1n;
    } else if (!ofTransaction || !off.has(batch.producerId) || doubtful.has(batch.producerId)) {
      if (batch.unreadable !== undefined) {
        items.push({ first: next, last, record: null, unreadable: batch.unreadable, bytes: batch.unreadable.raw.length });
        bytes += batch.unreadable.raw.length;
        next = last + 1n;
      }
      for (const record of batch.records) {
        const offset = batch.firstOffset + BigInt(record.offsetDelta);
        if (offset < next) continue;
        const size = sizeOf(record);
        items.push({ first: next, last: offset, record, bytes: size });
        bytes += size;
        next = offset + 1n;
      }
    }
    if (next <= last) items.push({ first: next, last, record: null, bytes: 0 });
    next = last + 1n;
    if (bytes >= most) break;
  }
  return items;
}

const undecided = "a damaged batch before it may have been the end of a transaction: nobody can tell whether these records were committed";

/** Its bytes, and what the objects around them take: three buffers, the record, its headers, the item and two offsets. */
const sizeOf = ({ raw }: StoredRecord): number => objectBytes + raw.length;
const objectBytes = 600;
