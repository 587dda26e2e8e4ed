import type { Outgoing } from "../../contracts/sink.ts";
import { fromAttributes, toAttributes } from "../../core/cloudevents.ts";
import type { Envelope } from "../../core/event.ts";
import type { NatsMessage } from "./driver.ts";

export type Headers = readonly (readonly [string, string])[];

const prefix = "ce-";

/** Everything but the data: attributes percent-encoded under `ce-`, the user's headers as they are, and the id for the stream's dedupe. */
export function headersOf({ envelope, source }: Outgoing): Headers {
  return [
    ["Nats-Msg-Id", encode(messageId(envelope))],
    ...Object.entries(toAttributes(envelope, source)).map(([name, value]) => [prefix + name, encode(value)] as const),
    ...Object.entries(envelope.headers),
  ];
}

/**
 * A stream drops what has the id of an earlier message. A dead letter has the id of its event, and may go to a stream that holds the
 * event, or another consumer's letter of it.
 */
function messageId({ id, headers }: Envelope): string {
  const consumer = headers["waybill-dead-consumer"];
  return consumer === undefined ? id : `${id}:${consumer}:${headers["waybill-dead-at"] ?? ""}`;
}

/** How many bytes the server will count. */
export function sizeOf(headers: Headers, data: Uint8Array): number {
  let bytes = "NATS/1.0\r\n\r\n".length + data.byteLength;
  for (const [name, value] of headers) bytes += Buffer.byteLength(name) + Buffer.byteLength(value) + ": \r\n".length;
  return bytes;
}

/** What a header's name and value take in memory besides their bytes: a message may have thousands of empty ones. */
export const headerBytes = 128;

/** Null when it is not an event: it came from elsewhere, or is damaged. */
export function envelopeOf({ head, data }: Pick<NatsMessage, "head" | "data">): Envelope | null {
  if (!head.readable) return null;
  const attributes = new Map<string, string>();
  const others = new Map<string, string>();
  for (const [name, value] of head.headers) {
    const lower = name.toLowerCase();
    if (lower.startsWith("nats-")) continue;
    if (!lower.startsWith(prefix)) {
      const before = others.get(name);
      others.set(name, before === undefined ? value : `${before}, ${value}`);
      continue;
    }
    const text = decode(value);
    const attribute = lower.slice(prefix.length);
    // Two ids, or two types: nobody can say which is meant.
    if (text === null || attributes.has(attribute)) return null;
    attributes.set(attribute, text);
  }
  return fromAttributes(Object.fromEntries(attributes), Object.fromEntries(others), own(data));
}

/** A copy where the bytes are a small part of what came with them, which a delivery that waits would keep in memory. */
function own(data: Uint8Array): Uint8Array {
  return data.byteLength * 2 < data.buffer.byteLength ? data.slice() : data;
}

/** As the CloudEvents bindings say: space, double quote, percent, and whatever is not printable ASCII. */
function encode(text: string): string {
  return text.replaceAll(/[^\x21\x23\x24\x26-\x7e]+/g, (part) => Buffer.from(part).toString("hex").toUpperCase().replaceAll(/../g, "%$&"));
}

function decode(text: string): string | null {
  const plain = /^".*"$/.test(text) ? text.slice(1, -1).replaceAll(/\\(.)/g, "$1") : text;
  try {
    return decodeURIComponent(plain);
  } catch {
    return null;
  }
}
