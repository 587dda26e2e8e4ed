import { Cursor } from "./cursor.ts";

export interface FetchAnswer {
  readonly errorCode: number;
  readonly responses: readonly { readonly topicId: string; readonly partitions: readonly FetchedPartition[] }[];
}

export interface FetchedPartition {
  readonly partitionIndex: number;
  readonly errorCode: number;
  /** The committed messages end here; -1 with an error. */
  readonly stableOffset: bigint;
  readonly abortedTransactions?: readonly { readonly producerId: bigint; readonly firstOffset: bigint }[] | null;
  /** Batches: see batches.ts. */
  readonly records?: Buffer | null;
}

/**
 * Reads the answer to a fetch in version 13, but not its batches. The client library would unpack all batches at once, and drop the whole
 * answer for one that it cannot read: see docs/decisions/0020.
 */
export function fetchAnswerOf(bytes: Buffer): FetchAnswer {
  const cursor = new Cursor(bytes);
  cursor.int32();
  const errorCode = cursor.int16();
  cursor.int32();
  const responses = cursor.list(() => {
    const topicId = uuidOf(cursor.take(16));
    const partitions = cursor.list(() => partitionOf(cursor));
    tags(cursor);
    return { topicId, partitions };
  });
  return { errorCode, responses };
}

function partitionOf(cursor: Cursor): FetchedPartition {
  const [partitionIndex, errorCode] = [cursor.int32(), cursor.int16()];
  cursor.int64();
  const stableOffset = cursor.int64();
  cursor.int64();
  const abortedTransactions = cursor.list(() => {
    const aborted = { producerId: cursor.int64(), firstOffset: cursor.int64() };
    tags(cursor);
    return aborted;
  });
  cursor.int32();
  const size = cursor.unsigned() - 1;
  const records = size > 0 ? cursor.take(size) : null;
  tags(cursor);
  return { partitionIndex, errorCode, stableOffset, abortedTransactions, records };
}

function tags(cursor: Cursor): void {
  for (let left = cursor.unsigned(); left > 0; left--) {
    cursor.unsigned();
    cursor.take(cursor.unsigned());
  }
}

function uuidOf(bytes: Buffer): string {
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
