import zlib from "node:zlib";

/** Why something cannot be unpacked, in words. */
export class Unpackable extends Error {}

/** Node 22.15 and later have it. */
const { zstdDecompressSync } = zlib as typeof zlib & { readonly zstdDecompressSync?: typeof zlib.gunzipSync };

/** What the compressions of Kafka were before, up to so many bytes. Throws for what is damaged, or larger. */
export function unpack(compression: number, packed: Buffer, most: number): Buffer {
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
  const blocks: Buffer[] = [];
  let left = most;
  for (let at = xerialHead; at < packed.length;) {
    if (at + 4 > packed.length) throw damaged();
    const length = packed.readUInt32BE(at);
    if (at + 4 + length > packed.length) throw damaged();
    const block = snappyBlock(packed.subarray(at + 4, at + 4 + length), left);
    blocks.push(block);
    left -= block.length;
    at += 4 + length;
  }
  return Buffer.concat(blocks);
}

function snappyBlock(packed: Buffer, most: number): Buffer {
  let at = 0;
  let size = 0;
  for (let shift = 1; ; shift *= 128) {
    const byte = packed[at++];
    if (byte === undefined || shift > 2 ** 28) throw damaged();
    size += (byte & 127) * shift;
    if (byte < 128) break;
  }
  if (size > most) throw tooLarge(most);
  // Of what is written no more than about this can come: a head that promises more must not cost the memory.
  if (size > packed.length * 64) throw damaged();
  const out = Buffer.allocUnsafe(size);
  let end = 0;
  while (at < packed.length) {
    const tag = packed[at++]!;
    let length = (tag >> 2) + 1;
    if ((tag & 3) === 0) {
      if (length > 60) {
        const width = length - 60;
        if (at + width > packed.length) throw damaged();
        length = packed.readUIntLE(at, width) + 1;
        at += width;
      }
      if (at + length > packed.length || end + length > size) throw damaged();
      packed.copy(out, end, at, at + length);
      at += length;
      end += length;
      continue;
    }
    const width = [0, 1, 2, 4][tag & 3]!;
    if (at + width > packed.length) throw damaged();
    let back = packed.readUIntLE(at, width);
    at += width;
    if (width === 1) {
      back += (tag >> 5) << 8;
      length = ((tag >> 2) & 7) + 4;
    }
    end = repeat(out, end, back, length, size);
  }
  if (end !== size) throw damaged();
  return out;
}

const lz4Magic = 0x184d2204;

/** A frame of blocks, which may refer to those before them. */
function lz4(packed: Buffer, most: number): Buffer {
  if (packed.length < 7 || packed.readUInt32LE(0) !== lz4Magic) throw damaged();
  const flags = packed[4]!;
  const [blockSums, sized, dictionary] = [flags & 0x10, flags & 0x08, flags & 0x01];
  let at = 7 + (sized ? 8 : 0) + (dictionary ? 4 : 0);
  let out = Buffer.allocUnsafe(Math.min(most, Math.max(1_024, packed.length * 4)));
  let end = 0;
  const room = (bytes: number): void => {
    if (end + bytes > most) throw tooLarge(most);
    if (end + bytes <= out.length) return;
    const larger = Buffer.allocUnsafe(Math.min(most, Math.max(end + bytes, out.length * 2)));
    out.copy(larger, 0, 0, end);
    out = larger;
  };
  for (;;) {
    if (at + 4 > packed.length) throw damaged();
    const head = packed.readUInt32LE(at);
    at += 4;
    if (head === 0) return out.subarray(0, end);
    const until = at + (head & 0x7fffffff);
    if (until > packed.length) throw damaged();
    if (head >>> 31) {
      room(until - at);
      end += packed.copy(out, end, at, until);
      at = until;
    }
    while (at < until) {
      const token = packed[at++]!;
      const count = (first: number): number => {
        let length = first;
        for (let byte = 255; first === 15 && byte === 255; length += byte) {
          if (at >= until) throw damaged();
          byte = packed[at++]!;
        }
        return length;
      };
      const literals = count(token >> 4);
      if (at + literals > until) throw damaged();
      room(literals);
      end += packed.copy(out, end, at, at + literals);
      at += literals;
      if (at === until) break;
      if (at + 2 > until) throw damaged();
      const back = packed.readUInt16LE(at);
      at += 2;
      const length = count(token & 15) + 4;
      room(length);
      end = repeat(out, end, back, length, out.length);
    }
    if (blockSums) at += 4;
  }
}

/** Writes again what was written so far back; the two may overlap. */
function repeat(out: Buffer, end: number, back: number, length: number, size: number): number {
  if (back === 0 || back > end || end + length > size) throw damaged();
  if (back >= length) out.copyWithin(end, end - back, end - back + length);
  else for (let n = 0; n < length; n++) out[end + n] = out[end - back + n]!;
  return end + length;
}
