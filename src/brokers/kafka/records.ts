import type { Stored } from "./message.ts";
import type { FetchedPartition } from "./wire.ts";

/** What lies in a partition from `first` to `last`: a message at `last`, or nothing for us to read. */
export interface Item {
  readonly first: bigint;
  readonly last: bigint;
  readonly record: Stored | null;
  readonly bytes: number;
}

const transactional = 1 << 4;
const control = 1 << 5;

/** The committed messages of an answer, from an offset on, with what lies between them, so that every offset is in one of the items. */
export function itemsOf({ records, abortedTransactions }: FetchedPartition, from: bigint): readonly Item[] {
  const items: Item[] = [];
  const aborted = (abortedTransactions ?? []).toSorted((a, b) => Number(a.firstOffset - b.firstOffset));
  const off = new Set<bigint>();
  let next = from;
  for (const batch of records ?? []) {
    const last = batch.firstOffset + BigInt(batch.lastOffsetDelta);
    if (last < from) continue;
    while (aborted.length > 0 && aborted[0]!.firstOffset <= last) off.add(aborted.shift()!.producerId);
    // A transaction's end: what its producer writes behind it belongs to another.
    if ((batch.attributes & control) !== 0) off.delete(batch.producerId);
    else if ((batch.attributes & transactional) === 0 || !off.has(batch.producerId)) {
      for (const record of batch.records) {
        const offset = batch.firstOffset + BigInt(record.offsetDelta);
        if (offset < next) continue;
        items.push({ first: next, last: offset, record, bytes: sizeOf(record) });
        next = offset + 1n;
      }
    }
    if (next <= last) items.push({ first: next, last, record: null, bytes: 0 });
    next = last + 1n;
  }
  return items;
}

function sizeOf({ value, headers }: Stored): number {
  let bytes = 100 + (value?.length ?? 0);
  for (const [name, text] of headers) bytes += (name?.length ?? 0) + (text?.length ?? 0);
  return bytes;
}
