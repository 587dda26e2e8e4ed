import type { Outgoing } from "../../contracts/sink.ts";
import { eachAttribute, fromAttributes } from "../../core/cloudevents.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Envelope } from "../../core/event.ts";
import { charset, type ByteWriter } from "../kit/bytes.ts";
import type { Head } from "./head.ts";

const prefix = "ce-";

/** Everything but the data: the id for the stream's dedupe, attributes percent-encoded under `ce-`, and the user's headers as they are. */
export function writeHead(writer: ByteWriter, { envelope, source }: Outgoing): void {
  writer.text("Nats-Msg-Id: ");
  writeEncoded(writer, messageId(envelope));
  writer.crlf();
  eachAttribute(envelope, source, (name, value) => {
    writer.text(beginOf(name));
    writeEncoded(writer, value);
    writer.crlf();
  });
  for (const name of Object.keys(envelope.headers)) {
    const value = envelope.headers[name]!;
    // A line break would begin another header, one of the server's own perhaps.
    if (!writer.only(nameCharset, name) || lineBreak.test(value)) throw unsendable(name, envelope.id);
    writer.text(": ");
    writer.text(value.trim());
    writer.crlf();
  }
}

const begins = new Map<string, string>();
/** How an attribute's line begins; put together once. */
function beginOf(name: string): string {
  let begin = begins.get(name);
  if (begin === undefined) begins.set(name, (begin = `${prefix}${name}: `));
  return begin;
}

/** Printable ASCII but for the colon, which ends a name. */
const nameCharset = charset((code) => code >= 0x21 && code <= 0x7e && code !== 0x3a);
const lineBreak = /[\r\n]/;

function unsendable(name: string, id: string): WaybillError {
  const shown = JSON.stringify(name.slice(0, 64));
  return new WaybillError(
    "INVALID_HEADER",
    `event ${id} cannot be sent: NATS takes header ${shown} only with a name of printable ASCII without a colon, and no line break`,
  );
}

/**
 * A stream drops a message with the id of an earlier one. A letter has the id of its event, and may go to a stream that holds the event, or
 * another consumer's letter of it.
 */
function messageId({ id, headers }: Envelope): string {
  const consumer = headers["waybill-dead-consumer"];
  return consumer === undefined ? id : `${id}:${consumer}:${headers["waybill-dead-at"] ?? ""}`;
}

/** What a header's name and value take in memory besides their bytes: a message may have thousands of empty ones. */
export const headerBytes = 128;

/** Null when it is not an event: it came from elsewhere, or is damaged. */
export function envelopeOf({ head, data }: { readonly head: Head; readonly data: Uint8Array }): Envelope | null {
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
    // With two ids, or two types, it is unknown which one is meant.
    if (text === null || attributes.has(attribute)) return null;
    attributes.set(attribute, text);
  }
  return fromAttributes(Object.fromEntries(attributes), Object.fromEntries(others), own(data));
}

/** Copies data that is a small part of its buffer: a waiting delivery would keep the whole buffer in memory. */
function own(data: Uint8Array): Uint8Array {
  return data.byteLength * 2 < data.buffer.byteLength ? data.slice() : data;
}

/** Printable ASCII but for the double quote and the percent sign. */
const plainCharset = charset((code) => code >= 0x21 && code <= 0x7e && code !== 0x22 && code !== 0x25);

/** Percent-encodes what the CloudEvents bindings say: space, double quote, percent, and everything but printable ASCII. */
function writeEncoded(writer: ByteWriter, text: string): void {
  if (!writer.only(plainCharset, text)) writer.text(encode(text));
}

const encode = (text: string): string =>
  text.replaceAll(/[^\x21\x23\x24\x26-\x7e]+/g, (part) => Buffer.from(part).toString("hex").toUpperCase().replaceAll(/../g, "%$&"));

function decode(text: string): string | null {
  const plain = /^".*"$/.test(text) ? text.slice(1, -1).replaceAll(/\\(.)/g, "$1") : text;
  try {
    return decodeURIComponent(plain);
  } catch {
    return null;
  }
}
