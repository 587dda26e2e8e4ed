import type { Outgoing } from "../../contracts/sink.ts";
import { fromAttributes, toAttributes } from "../../core/cloudevents.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Envelope } from "../../core/event.ts";

/** What Kafka stores of an event, apart from where. */
export interface KafkaContent {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly headers: ReadonlyMap<Buffer, Buffer>;
}

const prefix = "ce_";
const type = "content-type";

/** Attributes as `ce_*` and `content-type`, the user's headers as they are: one that looks like an attribute would be read as one. */
export function contentOf({ envelope, source }: Outgoing): KafkaContent {
  const headers = new Map<Buffer, Buffer>();
  for (const [name, value] of Object.entries(toAttributes(envelope, source))) {
    headers.set(Buffer.from(name === "datacontenttype" ? type : prefix + name), Buffer.from(value));
  }
  for (const [name, value] of Object.entries(envelope.headers)) {
    const lower = name.toLowerCase();
    if (lower.startsWith(prefix) || lower === type) {
      throw new WaybillError(
        "RESERVED_HEADER",
        `event ${envelope.id} has a header ${JSON.stringify(name)}, which is Kafka's place for an attribute`,
      );
    }
    headers.set(Buffer.from(name), Buffer.from(value));
  }
  const { buffer, byteOffset, byteLength } = envelope.data;
  return { key: Buffer.from(envelope.aggregateId), value: Buffer.from(buffer, byteOffset, byteLength), headers };
}

/** Of a batch, before its first record. */
export const batchHeadBytes = 61;

/** How much a record adds to its batch at most. */
export function recordBytes({ key, value, headers }: KafkaContent): number {
  // Attributes, a timestamp that is the batch's own, and the place in the batch, of which there are fewer than 2^20.
  let bytes = 1 + 1 + 3 + sized(key.length) + sized(value.length) + varint(headers.size);
  for (const [name, text] of headers) bytes += sized(name.length) + sized(text.length);
  return sized(bytes);
}

const sized = (length: number): number => varint(length) + length;

/** Bytes of a length, which is written with a sign. */
function varint(length: number): number {
  let bytes = 1;
  for (let left = length * 2; left >= 128; left /= 128) bytes += 1;
  return bytes;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** An empty one takes two bytes, next to none of them when compressed, and a hundred times as many in memory. */
export const mostHeaders = 10_000;

export interface StoredRecord {
  readonly value: Buffer | null;
  /** Null when there are more than `mostHeaders`. */
  readonly headers: Iterable<readonly [Buffer | null, Buffer | null]> | null;
  /** All of the record behind its length, as Kafka stores it. */
  readonly raw: Buffer;
}

/** The way back: an event, or in words why it is none. */
export function envelopeOf({ value, headers }: StoredRecord): Envelope | string {
  if (headers === null) return `it has more than ${mostHeaders} headers`;
  const attributes: [string, string][] = [];
  const others: [string, string][] = [];
  try {
    for (const [name, text] of headers) {
      const header = utf8.decode(name ?? Buffer.alloc(0));
      const lower = header.toLowerCase();
      if (lower === type) attributes.push(["datacontenttype", utf8.decode(text ?? Buffer.alloc(0))]);
      else if (lower.startsWith(prefix)) attributes.push([lower.slice(prefix.length), utf8.decode(text ?? Buffer.alloc(0))]);
      else others.push([header, utf8.decode(text ?? Buffer.alloc(0))]);
    }
  } catch {
    return "one of its headers is not UTF-8";
  }
  // Copies, and not by assignment: the client's bytes are a view into all that came with them, and a header may be named __proto__.
  const event = fromAttributes(Object.fromEntries(attributes), Object.fromEntries(others), new Uint8Array(value ?? []));
  return event ?? "it has no ce_id, or no ce_type, and is no event";
}
