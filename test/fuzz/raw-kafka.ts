import { crc32, gzipSync } from "node:zlib";
import { batchOf, type RawRecord } from "../brokers/kafka-batch.ts";
import { produceAt, type At } from "../brokers/kafka-raw.ts";
import type { Message } from "./messages.ts";

/** Writes a batch of one record, or an old message set, made by hand, to the first partition of a topic. */
export function publishKafka(leader: At, topic: string, message: Message): Promise<void> {
  const kind = message.raw?.bytes[0] ?? 0;
  return kind === 4 || kind === 5
    ? produceAt(leader, topic, 0, oldSet(kind === 4 ? 1 : 0, message), 2)
    : produceAt(leader, topic, 0, batch(kind, message), 3);
}

/** What a gzip of some 60 KB unpacks to. */
const bombBytes = 64 * 1_048_576;

function batch(kind: number, { attributes, headers, data, raw }: Message): Buffer {
  const id = raw === null ? "" : raw.bytes.subarray(1).toString();
  const good = [
    ["ce_id", id],
    ["ce_type", "Fuzzed"],
  ] as const;
  const own = (): NonNullable<RawRecord["headers"]> => [
    ...attributes.map(([name, value]) => [name === "datacontenttype" ? "content-type" : `ce_${name}`, value] as const),
    ...headers,
  ];
  const odd: Readonly<Record<number, NonNullable<RawRecord["headers"]>>> = {
    1: [["ce_id", null]],
    2: [[Buffer.from([0xff, 0xfe]), Buffer.from([0xff])], ...good],
    6: [["", ""], ...good],
    7: [...Array.from({ length: 2_000 }, (_, n) => [`h${n}`, "v"] as const), ...good],
  };
  const record: RawRecord = {
    key: kind === 1 ? null : Buffer.from(id || "key"),
    value: kind === 1 ? null : kind === 3 ? Buffer.alloc(bombBytes) : data,
    headers: kind === 0 ? own() : (odd[kind] ?? good),
  };
  if (kind === 3) return batchOf([record], { attributes: 1, pack: gzipSync });
  // A broker refuses what is from the future.
  return batchOf([record], kind === 8 ? { at: 0 } : {});
}

/** The formats from before there were batches: no headers. */
function oldSet(magic: 0 | 1, { data }: Message): Buffer {
  const key = Buffer.from("key");
  const head = Buffer.alloc(magic === 1 ? 10 : 2);
  head[0] = magic;
  if (magic === 1) head.writeBigInt64BE(1n, 2);
  const rest = Buffer.concat([head, ...[key, data].flatMap((bytes) => (bytes === null ? [int(-1)] : [int(bytes.length), bytes]))]);
  const checked = Buffer.concat([int(crc32(rest) | 0), rest]);
  return Buffer.concat([Buffer.alloc(8), int(checked.length), checked]);
}

const int = (n: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(n);
  return bytes;
};
