import type { Batch } from "./batch.ts";
import { grouped } from "../reading/spots.ts";

/** What a Produce request says beside its batches. */
interface Delivered {
  readonly transactionalId: string | null;
  /** After which the broker gives up. */
  readonly timeoutMs: number;
}

/** The broker answers when every in-sync replica has the batch. */
const acksAll = -1;
/** Where fields of later versions would be. */
const none = Buffer.from([0]);

/** The body of a Produce request in version 9, in parts: the batches are not copied. */
export function produceRequest(batches: readonly Batch[], { transactionalId, timeoutMs }: Delivered): readonly Buffer[] {
  const topics = grouped(batches, ({ topic }) => topic);
  const parts = [
    transactionalId === null ? unsigned(0) : compact(transactionalId),
    int16(acksAll),
    int32(timeoutMs),
    unsigned(topics.size + 1),
  ];
  for (const [topic, own] of topics) {
    parts.push(compact(topic), unsigned(own.length + 1));
    for (const { partition, bytes } of own) parts.push(int32(partition), unsigned(bytes.length + 1), bytes, none);
    parts.push(none);
  }
  return [...parts, none];
}

const compact = (text: string): Buffer => Buffer.concat([unsigned(Buffer.byteLength(text) + 1), Buffer.from(text)]);

function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

function unsigned(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  for (; left >= 128; left >>>= 7) bytes.push((left & 127) | 128);
  return Buffer.from([...bytes, left]);
}
