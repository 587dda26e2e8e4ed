import { crc32c } from "./crc32c.ts";
import { Cursor } from "./cursor.ts";
import { mostHeaders, type Stored } from "./message.ts";
import { unpack, Unpackable } from "./unpack.ts";

export interface BatchRecord extends Stored {
  readonly offsetDelta: number;
}

/** Records that were written together. */
export interface RecordBatch {
  readonly firstOffset: bigint;
  readonly lastOffsetDelta: number;
  readonly attributes: number;
  readonly producerId: bigint;
  readonly records: readonly BatchRecord[];
  /** Why it cannot be read, and its bytes; then it has no records. */
  readonly unreadable?: { readonly why: string; readonly raw: Buffer };
}

/** What one batch may unpack to. Whole batches are at most as large as max.message.bytes, packed: 1 MiB by default. */
export const mostUnpacked = 64 * 1024 * 1024;
/** Of one batch. The smallest have seven bytes, and some hundreds in memory: of those, 64 MiB would fill a heap. */
export const mostRecords = 200_000;

const compressed = 0b111;
export const transactional = 1 << 4;
export const control = 1 << 5;

/** Offset and length, and the place of what says how the rest is to be read. */
const [head, magicAt, batchHead] = [12, 16, 61];
/** Attributes, timestamp, offset, key, value and headers take a byte each at least, and the length too. */
const leastRecord = 7;

/** The batches of an answer, one by one, so that none is unpacked before it is wanted. The last may be cut short, and is left out. */
export function* batchesIn(bytes: Buffer): Generator<RecordBatch, undefined> {
  for (let at = 0; at + magicAt < bytes.length;) {
    const length = bytes.readInt32BE(at + 8);
    const end = at + head + length;
    if (length < 5 || end > bytes.length) return;
    const batch = batchOf(bytes.subarray(at, end));
    yield batch.unreadable !== undefined && end + 8 <= bytes.length ? before(batch, bytes.readBigInt64BE(end)) : batch;
    at = end;
  }
}

/** A damaged one may claim offsets that are another's. */
function before(batch: RecordBatch, next: bigint): RecordBatch {
  const until = Number(next - batch.firstOffset) - 1;
  return until >= 0 && until < batch.lastOffsetDelta ? { ...batch, lastOffsetDelta: until } : batch;
}

/** What is known of a batch that never comes whole. */
export function torn(raw: Buffer, from: bigint): RecordBatch {
  const last = raw.length >= 27 && raw[magicAt] === 2 ? raw.readBigInt64BE(0) + BigInt(raw.readInt32BE(23)) : from;
  return unreadable(from, last > from ? last : from, "it is cut short, or its length is damaged", raw);
}

function batchOf(raw: Buffer): RecordBatch {
  const firstOffset = raw.readBigInt64BE(0);
  const magic = raw[magicAt]!;
  // Before version 2, the offset is that of the last message in it.
  if (magic !== 2) return unreadable(firstOffset, firstOffset, `it has the format ${magic} of messages: only 2 is read`, raw);
  if (raw.length < batchHead) return unreadable(firstOffset, firstOffset, "it is shorter than the head of a batch", raw);
  const [attributes, lastOffsetDelta, producerId] = [raw.readInt16BE(21), raw.readInt32BE(23), raw.readBigInt64BE(43)];
  const last = firstOffset + BigInt(Math.max(0, lastOffsetDelta));
  if (raw.readUInt32BE(17) !== crc32c(raw.subarray(21))) return unreadable(firstOffset, last, "its checksum is wrong", raw);
  const batch = { firstOffset, lastOffsetDelta, attributes, producerId };
  if (attributes & control) return { ...batch, records: [] };
  try {
    const packed = raw.subarray(batchHead);
    const content = attributes & compressed ? unpack(attributes & compressed, packed, mostUnpacked) : packed;
    return { ...batch, records: recordsIn(content, raw.readInt32BE(57), lastOffsetDelta) };
  } catch (error) {
    const why = error instanceof Unpackable ? error.message : "its records are damaged";
    return { ...unreadable(firstOffset, last, why, raw), attributes, producerId };
  }
}

const unreadable = (firstOffset: bigint, last: bigint, why: string, raw: Buffer): RecordBatch => ({
  ...{ firstOffset, lastOffsetDelta: Number(last - firstOffset), attributes: 0, producerId: -1n, records: [] },
  unreadable: { why, raw },
});

function recordsIn(bytes: Buffer, count: number, lastOffsetDelta: number): readonly BatchRecord[] {
  const cursor = new Cursor(bytes);
  if (count < 0 || count * leastRecord > cursor.left) throw new RangeError("more records than bytes");
  if (count > mostRecords) throw new Unpackable(`it has more than ${mostRecords} records`);
  const records: BatchRecord[] = [];
  let before = -1;
  for (let n = 0; n < count; n++) {
    const length = cursor.varint();
    const from = cursor.at;
    cursor.take(1);
    cursor.varlong();
    const offsetDelta = cursor.varint();
    if (offsetDelta <= before || offsetDelta > lastOffsetDelta) throw new RangeError("offsets that do not ascend");
    before = offsetDelta;
    cursor.skip(); // the key: the attributes have it
    const value = cursor.sized();
    const named = cursor.varint();
    if (named < 0 || named * 2 > cursor.left) throw new RangeError("more headers than bytes");
    const packed = cursor.at - from;
    if (named > mostHeaders) cursor.take(from + length - cursor.at);
    else for (let i = 0; i < named * 2; i++) cursor.skip();
    if (cursor.at !== from + length) throw new RangeError("a record that is not as long as it says");
    const raw = bytes.subarray(from, cursor.at);
    records.push({ offsetDelta, value, headers: named > mostHeaders ? null : new Headers(raw.subarray(packed), named), raw });
  }
  return records;
}

/** Made when they are read: those of all records of a batch at once would take many times its bytes. */
class Headers {
  readonly #bytes: Buffer;
  readonly #count: number;

  constructor(bytes: Buffer, count: number) {
    this.#bytes = bytes;
    this.#count = count;
  }

  *[Symbol.iterator](): Generator<readonly [Buffer | null, Buffer | null], undefined> {
    const cursor = new Cursor(this.#bytes);
    for (let n = 0; n < this.#count; n++) yield [cursor.sized(), cursor.sized()];
  }
}
