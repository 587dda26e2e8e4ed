import { crc32c } from "../../src/brokers/kafka/crc32c.ts";

export interface RawRecord {
  readonly key?: Buffer | null;
  readonly value?: Buffer | null;
  readonly headers?: readonly (readonly [string | Buffer, string | Buffer | null])[];
}

const varint = (value: number): Buffer => {
  const bytes: number[] = [];
  let left = value >= 0 ? value * 2 : -value * 2 - 1;
  for (; left >= 128; left = Math.floor(left / 128)) bytes.push((left % 128) + 128);
  return Buffer.from([...bytes, left]);
};
const sized = (content: Buffer | string | null): Buffer =>
  content === null ? varint(-1) : Buffer.concat([varint(Buffer.byteLength(content)), Buffer.from(content as string)]);

/** The headers of an event, and some more. */
export const eventHeaders = (id: string): [string, string][] => [
  ["ce_id", id],
  ["ce_type", "Paid"],
];

function recordOf({ key = null, value = Buffer.from("{}"), headers = [] }: RawRecord, offsetDelta: number): Buffer {
  const content = Buffer.concat([
    ...[Buffer.from([0]), varint(0), varint(offsetDelta), sized(key), sized(value), varint(headers.length)],
    ...headers.flatMap(([name, text]) => [sized(name), sized(text)]),
  ]);
  return Buffer.concat([varint(content.length), content]);
}

/** A record with so many headers that have neither a name nor a text. */
export function emptyHeaders(count: number, offsetDelta: number): Buffer {
  const content = Buffer.concat([
    Buffer.from([0]),
    varint(0),
    varint(offsetDelta),
    sized(null),
    sized(null),
    varint(count),
    Buffer.alloc(count * 2),
  ]);
  return Buffer.concat([varint(content.length), content]);
}

export interface BatchOptions {
  readonly firstOffset?: bigint;
  readonly attributes?: number;
  readonly count?: number;
  readonly magic?: number;
  /** When it was written, as its producer says. */
  readonly at?: number;
  readonly pack?: (records: Buffer) => Buffer;
}

/** A batch of the protocol's version 2, right or wrong. */
export function batchOf(records: readonly RawRecord[], options: BatchOptions = {}): Buffer {
  const { firstOffset = 0n, attributes = 0, count = records.length, magic = 2, pack = (bytes: Buffer) => bytes } = options;
  const packed = pack(Buffer.concat(records.map(recordOf)));
  const batch = Buffer.alloc(61 + packed.length);
  batch.writeBigInt64BE(firstOffset, 0);
  batch.writeInt32BE(batch.length - 12, 8);
  batch[16] = magic;
  batch.writeInt16BE(attributes, 21);
  batch.writeInt32BE(count - 1, 23);
  const at = BigInt(options.at ?? Date.now());
  batch.writeBigInt64BE(at, 27);
  batch.writeBigInt64BE(at, 35);
  batch.writeBigInt64BE(-1n, 43);
  batch.writeInt16BE(-1, 51);
  batch.writeInt32BE(-1, 53);
  batch.writeInt32BE(count, 57);
  packed.copy(batch, 61);
  batch.writeUInt32BE(crc32c(batch.subarray(21)), 17);
  return batch;
}
