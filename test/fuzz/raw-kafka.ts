import type { Socket } from "node:net";
import { crc32, gzipSync } from "node:zlib";
import type { Message } from "./messages.ts";

/** One produce request with a batch of one record, or an old message set, made by hand; and the broker's answer. */
export function produceRaw(connect: () => Socket, topic: string, message: Message): Promise<void> {
  const kind = message.raw?.bytes[0] ?? 0;
  const records = kind === 4 || kind === 5 ? oldSet(kind === 4 ? 1 : 0, message) : batch(kind, message);
  const version = kind === 4 || kind === 5 ? 2 : 3;
  const name = Buffer.from(topic);
  const body = Buffer.concat([
    ...(version === 3 ? [i16(-1)] : []),
    ...[i16(-1), i32(5_000), i32(1), i16(name.length), name, i32(1), i32(0), i32(records.length), records],
  ]);
  const request = Buffer.concat([i16(0), i16(version), i32(1), i16(4), Buffer.from("fuzz"), body]);
  const socket = connect();
  return new Promise<void>((resolve, reject) => {
    const parts: Buffer[] = [];
    socket.setTimeout(10_000, () => reject(new Error("no answer within 10 s")));
    socket.on("error", reject);
    socket.on("close", () => reject(new Error("the broker closed the connection")));
    socket.on("data", (chunk) => {
      parts.push(chunk);
      const all = Buffer.concat(parts);
      if (all.length < 4 || all.length < 4 + all.readInt32BE(0)) return;
      // Correlation, one topic, its name, one partition, its number, the code.
      const code = all.readInt16BE(8 + 4 + 2 + name.length + 4 + 4);
      if (code === 0) resolve();
      else reject(new Error(`refused with code ${code}`));
    });
    socket.write(Buffer.concat([i32(request.length), request]));
  }).finally(() => socket.destroy());
}

const bytesOf = (value: string): Buffer => Buffer.from(value);

function batch(kind: number, { attributes, headers, data, raw }: Message): Buffer {
  const id = raw === null ? "" : raw.bytes.subarray(1).toString();
  const good: [Buffer | null, Buffer | null][] = [
    [bytesOf("ce_id"), bytesOf(id)],
    [bytesOf("ce_type"), bytesOf("Fuzzed")],
  ];
  const own = (): [Buffer | null, Buffer | null][] => [
    ...attributes.map(
      ([name, value]) => [bytesOf(name === "datacontenttype" ? "content-type" : `ce_${name}`), bytesOf(value)] as [Buffer, Buffer],
    ),
    ...headers.map(([name, value]) => [bytesOf(name), bytesOf(value)] as [Buffer, Buffer]),
  ];
  const odd: Readonly<Record<number, [Buffer | null, Buffer | null][]>> = {
    1: [[bytesOf("ce_id"), null]],
    2: [[Buffer.from([0xff, 0xfe]), Buffer.from([0xff])], ...good],
    6: [[bytesOf(""), bytesOf("")], ...good],
    7: [...Array.from({ length: 2_000 }, (_, n) => [bytesOf(`h${n}`), bytesOf("v")] as [Buffer, Buffer]), ...good],
  };
  const all = kind === 0 ? own() : (odd[kind] ?? good);
  // A broker refuses what is from the future.
  const time = kind === 8 ? 0n : BigInt(Date.now());
  const content = record(kind === 1 ? null : bytesOf(id || "key"), kind === 1 ? null : kind === 3 ? Buffer.alloc(bombBytes) : data, all);
  const packed = kind === 3 ? gzipSync(content) : content;
  const rest = Buffer.concat([i16(kind === 3 ? 1 : 0), i32(0), i64(time), i64(time), i64(-1n), i16(-1), i32(-1), i32(1), packed]);
  const tail = Buffer.concat([i32(0), Buffer.from([2]), u32(crc32c(rest)), rest]);
  return Buffer.concat([i64(0n), i32(tail.length), tail]);
}

/** What a gzip of some 60 KB unpacks to. */
const bombBytes = 64 * 1_048_576;

function record(key: Buffer | null, value: Buffer | null, headers: readonly [Buffer | null, Buffer | null][]): Buffer {
  const head = Buffer.concat([Buffer.from([0]), varint(0), varint(0), sized(key), sized(value)]);
  const inner = Buffer.concat([head, varint(headers.length), ...headers.flatMap(([name, text]) => [sized(name), sized(text)])]);
  return Buffer.concat([varint(inner.length), inner]);
}

/** The formats from before there were batches: no headers. */
function oldSet(magic: 0 | 1, { data }: Message): Buffer {
  const long = (bytes: Buffer | null): Buffer => (bytes === null ? i32(-1) : Buffer.concat([i32(bytes.length), bytes]));
  const rest = Buffer.concat([Buffer.from([magic, 0]), ...(magic === 1 ? [i64(1n)] : []), long(bytesOf("key")), long(data)]);
  const message = Buffer.concat([u32(crc32(rest)), rest]);
  return Buffer.concat([i64(0n), i32(message.length), message]);
}

const sized = (bytes: Buffer | null): Buffer => (bytes === null ? varint(-1) : Buffer.concat([varint(bytes.length), bytes]));

/** With its sign in the last bit. */
function varint(n: number): Buffer {
  const bytes: number[] = [];
  let left = n < 0 ? -n * 2 - 1 : n * 2;
  for (; left >= 128; left = Math.floor(left / 128)) bytes.push((left % 128) | 128);
  return Buffer.from([...bytes, left]);
}

const i16 = (n: number): Buffer => {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(n);
  return bytes;
};
const i32 = (n: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(n);
  return bytes;
};
const u32 = (n: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(n >>> 0);
  return bytes;
};
const i64 = (n: bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(n);
  return bytes;
};

const table = Array.from({ length: 256 }, (_, n) => {
  let crc = n;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc >>> 0;
});
function crc32c(bytes: Buffer): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = table[(crc ^ byte) & 255]! ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}
