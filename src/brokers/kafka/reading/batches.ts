import { crc32c } from "../crc32c.ts";
import { Cursor } from "./cursor.ts";
import { mostHeaders, type StoredRecord } from "../message.ts";
import { unpack, Unpackable } from "./unpack.ts";

interface BatchRecord extends StoredRecord {
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
  /** Nothing in its head can be relied on, not even its length. */
  readonly damaged?: boolean;
}

/** The most bytes that one batch may unpack to. Packed, a batch has at most max.message.bytes: 1 MiB by default. */
export const mostUnpacked = 64 * 1024 * 1024;
/** Of one batch. The smallest records have seven bytes, but some hundreds in memory: 64 MiB of them would fill a heap. */
export const mostRecords = 200_000;

const compressed = 0b111;
export const transactional = 1 << 4;
export const control = 1 << 5;

/** Bytes of offset and length, the position of the format version, and bytes of a batch's whole head. */
const [head, magicAt, batchHead] = [12, 16, 61];
/** Attributes, timestamp, offset, key, value and headers take a byte each at least, and the length too. */
const leastRecord = 7;

export interface ReadBounds {
  /** The offset that was asked for. The first batch contains it, or comes after it. @default 0 */
  readonly asked?: bigint;
  /** What is at this offset or behind it is left out: the log had no more when it was read. @default none */
  readonly end?: bigint;
  /** A batch that is cut short is taken for one with a damaged length, and batches after it are searched for. @default false */
  readonly thorough?: boolean;
}

/**
 * The batches of an answer, one by one, so that none is unpacked before it is wanted. The last may be cut short, and is left out. Bytes
 * between two batches that are no batch count as a damaged one, whatever their head says. A damaged batch with no sound one after it is
 * left out too, unless the answer begins with it: the next answer will.
 */
export function* batchesIn(
  bytes: Buffer,
  { asked = 0n, end = lastOffset, thorough = false }: ReadBounds = {},
): Generator<RecordBatch, undefined> {
  let next = 0n;
  for (let at = 0; at + magicAt < bytes.length;) {
    const least = next > asked ? next : asked + 1n;
    const raw = wholeAt(bytes, at);
    if (raw === null && !thorough && bytes.readInt32BE(at + 8) >= leastLength) return;
    const batch = raw === null ? null : batchOf(raw);
    const to = at + (raw?.length ?? 0);
    if (batch !== null && fits(batch, next, end) && !belied(batch, bytes, to, least)) {
      yield batch;
      next = lastOf(batch) + 1n;
      at = to;
      continue;
    }
    // Its own length may still be right, and is if the checksum is. Bytes inside a batch that look like a batch may be a message's data.
    const isWhole = batch !== null && batch.damaged !== true;
    const find = (): number | null => (isWhole && !thorough ? null : soundBehind(bytes, isWhole ? to : at + 1, least, end));
    const sound = raw !== null && isSound(bytes, to, least, end) ? to : find();
    if (sound === null) {
      if (at === 0 && batch?.damaged === true) yield claimed(batch, bytes, to, end);
      return;
    }
    const last = bytes.readBigInt64BE(sound) - 1n;
    const why = batch === null ? "its length is damaged" : (batch.unreadable?.why ?? "its offset is damaged");
    if (last >= next) yield unreadable(next, last, why, bytes.subarray(at, sound));
    at = sound;
  }
}

const lastOffset = 2n ** 63n - 1n;
/** Up to and including the format version. */
const leastLength = 5;

const fits = (batch: RecordBatch, next: bigint, end: bigint): boolean =>
  batch.damaged !== true && batch.firstOffset >= next && batch.lastOffsetDelta >= 0 && lastOf(batch) < end;

/** The bytes after the sound batches that end before an offset. */
export function bytesFrom(bytes: Buffer, offset: bigint): Buffer {
  let at = 0;
  for (let raw = wholeAt(bytes, at); raw !== null && isSound(bytes, at, 0n, offset); raw = wholeAt(bytes, at)) at += raw.length;
  return bytes.subarray(at);
}

const lastOf = ({ firstOffset, lastOffsetDelta }: RecordBatch): bigint => firstOffset + BigInt(lastOffsetDelta);

function wholeAt(bytes: Buffer, at: number): Buffer | null {
  if (at + magicAt >= bytes.length) return null;
  const length = bytes.readInt32BE(at + 8);
  const to = at + head + length;
  return length < leastLength || to > bytes.length ? null : bytes.subarray(at, to);
}

/** The checksum does not cover a batch's own offset. A sound batch right after it shows when that offset is wrong. */
function belied(batch: RecordBatch, bytes: Buffer, to: number, least: bigint): boolean {
  if (to + 8 > bytes.length) return false;
  const behind = bytes.readBigInt64BE(to);
  return behind <= lastOf(batch) && isSound(bytes, to, least, lastOffset);
}

function isSound(bytes: Buffer, at: number, least: bigint, end: bigint): boolean {
  if (bytes[at + magicAt] !== 2) return false;
  const raw = wholeAt(bytes, at);
  if (raw === null || raw.length < batchHead) return false;
  const [first, delta] = [raw.readBigInt64BE(0), raw.readInt32BE(23)];
  return first >= least && delta >= 0 && first + BigInt(delta) < end && raw.readUInt32BE(17) === crc32c(raw.subarray(21));
}

function soundBehind(bytes: Buffer, from: number, least: bigint, end: bigint): number | null {
  for (let at = from; at + batchHead <= bytes.length; at++) if (isSound(bytes, at, least, end)) return at;
  return null;
}

/** The batch with the offsets it claims, but none of the batch after it, whose head may be here, and none that is not there yet. */
function claimed(batch: RecordBatch, bytes: Buffer, to: number, end: bigint): RecordBatch {
  const behind = to + 8 <= bytes.length ? bytes.readBigInt64BE(to) : end;
  const until = behind > batch.firstOffset && behind < end ? behind : end;
  return lastOf(batch) < until ? batch : { ...batch, lastOffsetDelta: Number(until - 1n - batch.firstOffset) };
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
    return { ...unreadable(firstOffset, last, why, raw), damaged: false, attributes, producerId };
  }
}

const unreadable = (firstOffset: bigint, last: bigint, why: string, raw: Buffer): RecordBatch => ({
  ...{ firstOffset, lastOffsetDelta: Number(last - firstOffset), attributes: 0, producerId: -1n, records: [] },
  ...{ unreadable: { why, raw }, damaged: true },
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

/** Decoded only when read: the headers of all records of a batch at once would take many times its bytes. */
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
