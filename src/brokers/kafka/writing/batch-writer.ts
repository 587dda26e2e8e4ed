import { eachAttribute } from "../../../core/cloudevents.ts";
import type { Envelope } from "../../../core/event.ts";
import { batchHeadBytes, head } from "./batch.ts";
import { attributeHeader } from "../message.ts";
import { RecordWriter, varintBytes, writeVarint } from "./record-writer.ts";

/** How many bytes the length of most records takes. Records of another size are moved when they are written. */
const usualLength = 2;
/** Bytes before a record's offset: its attributes (it has none) and its timestamp (that of the batch). */
const beforeOffset = 2;

/** By attribute: its header's name after the name's length, as every record has it. */
const named = new Map<string, Buffer>();
const nameOf = (attribute: string): Buffer => {
  let bytes = named.get(attribute);
  if (bytes === undefined) {
    const name = Buffer.from(attributeHeader(attribute));
    named.set(attribute, (bytes = Buffer.from([name.length * 2, ...name])));
  }
  return bytes;
};
/** How many headers an event has without an idempotency key and without headers of its own. */
const leastHeaders = 11;

/**
 * Writes record batches (version 2 of the format) one after another into one buffer. An envelope's aggregate id becomes the key, its data
 * the value, and the attributes of `toAttributes` the headers, in its order. No object is made per record or header.
 */
export class BatchWriter {
  readonly #out: RecordWriter;
  #batch = 0;
  #count = 0;
  /** Of the last record: where it begins, its size without the length field, and how many records are before it. */
  #record = 0;
  #body = 0;
  #before = 0;

  constructor(size = 256 * 1024) {
    this.#out = new RecordWriter(size);
  }

  /** What it keeps in memory. */
  get capacity(): number {
    return this.#out.bytes.length;
  }

  /** Of the batch that is being written. */
  get batchBytes(): number {
    return this.#out.at - this.#batch;
  }

  /** The size of a batch with only the last record, whose offset then takes one byte. */
  get aloneBytes(): number {
    const body = this.#body - varintBytes(this.#before) + 1;
    return batchHeadBytes + varintBytes(body) + body;
  }

  /** What is written next overwrites everything before. */
  reset(): void {
    this.#out.at = 0;
  }

  begin(): void {
    this.#batch = this.#out.at;
    this.#count = 0;
    this.#out.room(batchHeadBytes);
    this.#out.at += batchHeadBytes;
  }

  add(envelope: Envelope, source: string): void {
    const out = this.#out;
    this.#record = out.at;
    this.#before = this.#count;
    out.room(usualLength + beforeOffset);
    const from = (out.at += usualLength);
    out.bytes[out.at++] = 0;
    out.bytes[out.at++] = 0;
    out.varint(this.#count);
    out.sized(envelope.aggregateId);
    out.varint(envelope.data.length);
    out.data(envelope.data);
    this.#headers(envelope, source);
    this.#length(out.at - from);
    this.#count += 1;
  }

  /** Takes the last record back, or what was written of it before it failed. */
  undo(): void {
    this.#out.at = this.#record;
    this.#count = this.#before;
  }

  /** The batch, still without its producer and checksum: see `seal`. */
  end(timestamp: number): Buffer {
    const batch = this.#out.bytes.subarray(this.#batch, this.#out.at);
    batch.fill(0, 0, batchHeadBytes);
    batch.writeInt32BE(batch.length - head.leaderEpoch, head.length);
    batch[head.magic] = 2;
    batch.writeInt32BE(this.#count - 1, head.lastOffsetDelta);
    for (const at of [head.firstTimestamp, head.maxTimestamp]) batch.writeBigInt64BE(BigInt(Math.floor(timestamp)), at);
    batch.writeInt32BE(this.#count, head.count);
    return batch;
  }

  #headers(envelope: Envelope, source: string): void {
    const out = this.#out;
    const own = Object.keys(envelope.headers);
    out.varint(leastHeaders + (envelope.idempotencyKey === null ? 0 : 1) + own.length);
    eachAttribute(envelope, source, this.#attribute);
    for (const name of own) {
      out.sized(name);
      out.sized(envelope.headers[name]!);
    }
  }

  readonly #attribute = (name: string, value: string): void => {
    this.#out.few(nameOf(name));
    this.#out.sized(value);
  };

  /** Writes the length in front of the record, where `usualLength` bytes were left for it. */
  #length(body: number): void {
    const out = this.#out;
    const bytes = varintBytes(body);
    if (bytes !== usualLength) {
      out.room(bytes);
      out.bytes.copyWithin(this.#record + bytes, this.#record + usualLength, out.at);
      out.at += bytes - usualLength;
    }
    writeVarint(out.bytes, this.#record, body);
    this.#body = body;
  }
}
