import zlib from "node:zlib";
import { Cursor } from "./cursor.ts";

/** Why something cannot be unpacked, in words. */
export class Unpackable extends Error {}

/** Node 22.15 and later have it. */
const { zstdDecompressSync } = zlib as typeof zlib & { readonly zstdDecompressSync?: typeof zlib.gunzipSync };

/** Undoes Kafka's compressions, up to `most` bytes. Throws when the content is damaged, or larger. */
export function unpack(compression: number, packed: Buffer, most: number): Buffer {
  try {
    return unpacked(compression, packed, most);
  } catch (error) {
    throw error instanceof RangeError ? damaged() : error; // it reads beyond its end
  }
}

function unpacked(compression: number, packed: Buffer, most: number): Buffer {
  switch (compression) {
    case 1:
      return inflated(zlib.gunzipSync, packed, most);
    case 2:
      return snappy(packed, most);
    case 3:
      return lz4(packed, most);
    case 4:
      if (zstdDecompressSync !== undefined) return inflated(zstdDecompressSync, packed, most);
      throw new Unpackable("it is compressed with zstd, which this version of Node.js does not know: 22.15 does");
    default:
      throw new Unpackable(`it is compressed in a way that is not known (${compression})`);
  }
}

const tooLarge = (most: number): Unpackable => new Unpackable(`it unpacks to more than ${most} bytes`);
const damaged = (): Unpackable => new Unpackable("its compression is damaged");

function inflated(inflate: typeof zlib.gunzipSync, packed: Buffer, most: number): Buffer {
  try {
    return inflate(packed, { maxOutputLength: most });
  } catch (error) {
    throw (error as { code?: unknown }).code === "ERR_BUFFER_TOO_LARGE" ? tooLarge(most) : damaged();
  }
}

/** Java's clients write blocks behind a head of their own, others one block. */
const xerial = Buffer.from("\x82SNAPPY\0", "latin1");
const xerialHead = 16;

function snappy(packed: Buffer, most: number): Buffer {
  if (!packed.subarray(0, xerial.length).equals(xerial)) return snappyBlock(packed, most);
  const cursor = new Cursor(packed.subarray(xerialHead));
  const blocks: Buffer[] = [];
  for (let left = most; cursor.left > 0; left -= blocks.at(-1)!.length) blocks.push(snappyBlock(cursor.take(cursor.int32()), left));
  return Buffer.concat(blocks);
}

function snappyBlock(packed: Buffer, most: number): Buffer {
  const cursor = new Cursor(packed);
  const size = cursor.unsigned();
  if (size > most) throw tooLarge(most);
  // The packed bytes cannot unpack to more than about this: a head that promises more must not cost the memory.
  if (size > packed.length * 64) throw damaged();
  const out = Buffer.allocUnsafe(size);
  let end = 0;
  while (cursor.left > 0) {
    const tag = cursor.little(1);
    const [kind, length] = [tag & 3, (tag >> 2) + 1];
    if (kind === 0) {
      const literals = cursor.take(length > 60 ? cursor.little(length - 60) + 1 : length);
      if (end + literals.length > size) throw damaged();
      end += literals.copy(out, end);
    } else if (kind === 1) end = repeat(out, end, ((tag >> 5) << 8) + cursor.little(1), ((tag >> 2) & 7) + 4, size);
    else end = repeat(out, end, cursor.little(kind === 2 ? 2 : 4), length, size);
  }
  if (end !== size) throw damaged();
  return out;
}

const lz4Magic = 0x184d2204;

/** A frame of blocks, which may refer to those before them. */
function lz4(packed: Buffer, most: number): Buffer {
  const cursor = new Cursor(packed);
  if (cursor.little(4) !== lz4Magic) throw damaged();
  const flags = cursor.little(1);
  const [blockSums, sized, dictionary] = [flags & 0x10, flags & 0x08, flags & 0x01];
  cursor.take(2 + (sized ? 8 : 0) + (dictionary ? 4 : 0));
  let out = Buffer.allocUnsafe(Math.min(most, Math.max(1_024, packed.length * 4)));
  let end = 0;
  const room = (bytes: number): void => {
    if (end + bytes > most) throw tooLarge(most);
    if (end + bytes <= out.length) return;
    const larger = Buffer.allocUnsafe(Math.min(most, Math.max(end + bytes, out.length * 2)));
    out.copy(larger, 0, 0, end);
    out = larger;
  };
  const write = (bytes: Buffer): void => {
    room(bytes.length);
    end += bytes.copy(out, end);
  };
  for (;;) {
    const head = cursor.little(4);
    if (head === 0) return out.subarray(0, end);
    const block = new Cursor(cursor.take(head & 0x7fffffff));
    if (head >>> 31) write(block.take(block.left));
    while (block.left > 0) {
      const token = block.little(1);
      write(block.take(lz4Length(block, token >> 4)));
      if (block.left === 0) break;
      const back = block.little(2);
      const length = lz4Length(block, token & 15) + 4;
      room(length);
      end = repeat(out, end, back, length, out.length);
    }
    if (blockSums) cursor.take(4);
  }
}

/** From 15 on, the rest follows in more bytes, up to the first that is not 255. */
function lz4Length(block: Cursor, first: number): number {
  let length = first;
  for (let byte = 255; first === 15 && byte === 255; length += byte) byte = block.little(1);
  return length;
}

/** Copies what was written `back` bytes before; the two ranges may overlap. */
function repeat(out: Buffer, end: number, back: number, length: number, size: number): number {
  if (back === 0 || back > end || end + length > size) throw damaged();
  if (back >= length) out.copyWithin(end, end - back, end - back + length);
  else for (let n = 0; n < length; n++) out[end + n] = out[end - back + n]!;
  return end + length;
}
