import type { Outgoing } from "../../contracts/sink.ts";
import { eachAttribute, fromAttributes } from "../../core/cloudevents.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Envelope } from "../../core/event.ts";
import type { ByteWriter } from "../kit/bytes.ts";
import type { Arrival } from "./driver.ts";
import { shortBytes } from "./names.ts";
import type { TableValue } from "./tables.ts";

const prefix = "cloudEvents:";
/** CC and BCC would send the message to other topics too, x-* belongs to the server, and the client cannot carry __proto__. */
const reserved = /^(cloudEvents[:_]|x-)|^(CC|BCC|__proto__)$/;
/** All headers of a message travel in one frame, and the client has no more room for them. */
const maxHeaderBytes = 60_000;

/** Beside its table of headers a message has these properties: contentType, deliveryMode, messageId, timestamp and type. */
const flags = 0x8000 | 0x2000 | 0x1000 | 0x80 | 0x40 | 0x20;
const persistent = 2;

/** Writes the properties of a header frame, and returns the table's length. Throws for what AMQP cannot carry: the event is to blame. */
export function writeProperties(writer: ByteWriter, message: Outgoing): number {
  const { id, type, contentType, createdAt } = message.envelope;
  writer.uint(flags, 2);
  if (!writeShort(writer, contentType)) throw tooLong("contentType", contentType, id);
  const bytes = writeTable(writer, message);
  writer.uint(persistent, 1);
  if (!writeShort(writer, id)) throw tooLong("id", id, id);
  writer.uint(Math.max(0, Math.floor(createdAt.getTime() / 1_000)), 8);
  if (!writeShort(writer, type)) throw tooLong("type", type, id);
  return bytes;
}

function writeTable(writer: ByteWriter, { envelope, source }: Outgoing): number {
  const { id, headers } = envelope;
  const from = writer.at;
  writer.uint(0, 4);
  eachAttribute(envelope, source, (name, value) => {
    // The CloudEvents binding makes the content type a property of the message, not a header.
    if (name !== "datacontenttype") writeHeader(writer, headerOf(name), value);
  });
  for (const name of Object.keys(headers)) {
    checkName(name);
    writeHeader(writer, name, headers[name]!);
  }
  const bytes = writer.at - from - 4;
  if (bytes > maxHeaderBytes)
    throw new WaybillError(
      "INVALID_HEADER",
      `the headers of event ${id} take ${bytes} bytes, more than ${maxHeaderBytes}: move data into the payload`,
    );
  writer.bytes.writeUInt32BE(bytes, from);
  return bytes;
}

const stringTag = "S";

function writeHeader(writer: ByteWriter, name: string, value: string): void {
  writeShort(writer, name);
  writer.text(stringTag);
  const from = writer.at;
  writer.uint(0, 4);
  writer.text(value);
  writer.bytes.writeUInt32BE(writer.at - from - 4, from);
}

/** A text with one byte for its length. False when it is too long for that. */
export function writeShort(writer: ByteWriter, text: string): boolean {
  const from = writer.at;
  writer.uint(0, 1);
  writer.text(text);
  const bytes = writer.at - from - 1;
  writer.bytes[from] = bytes;
  return bytes <= shortBytes;
}

const names = new Map<string, string>();
/** An attribute's name as a header; put together once. */
function headerOf(name: string): string {
  let header = names.get(name);
  if (header === undefined) names.set(name, (header = prefix + name));
  return header;
}

function tooLong(what: string, text: string, id: string): WaybillError {
  const bytes = Buffer.byteLength(text);
  return new WaybillError("INVALID_DRAFT", `the ${what} of event ${id.slice(0, 64)} takes ${bytes} bytes, and AMQP takes ${shortBytes}`);
}

function checkName(name: string): void {
  const shown = JSON.stringify(name.slice(0, 64));
  if (reserved.test(name))
    throw new WaybillError("RESERVED_HEADER", `header name ${shown} has a meaning of its own in RabbitMQ: choose another`);
  const bytes = Buffer.byteLength(name);
  if (bytes === 0 || bytes > shortBytes)
    throw new WaybillError("INVALID_HEADER", `header name ${shown} takes ${bytes} bytes, and AMQP takes 1 to ${shortBytes}`);
}

/** What a header's name and value take in memory besides their bytes: a message may have thousands of empty ones. */
const valueBytes = 128;

/** How much a message counts against the bound in bytes. A nested header becomes JSON text, which may be six times as long. */
export function bytesInMemory({ properties, content }: Omit<Arrival, "tag">, envelope: Envelope): number {
  let text = 0;
  for (const [name, value] of Object.entries(envelope.headers)) text += name.length + value.length;
  return content.length + Math.max(properties.raw.length, text) + properties.values * valueBytes;
}

/** The event, or the reason why the message is none: it came from elsewhere, or is damaged. */
export function envelopeOf({ properties: { wrong, contentType, headers, garbled }, content }: Omit<Arrival, "tag">): Envelope | string {
  if (wrong !== null) return wrong;
  const attributes: [string, string][] = contentType === undefined ? [] : [["datacontenttype", contentType]];
  const others: [string, string][] = [];
  for (const [name, value] of headers) {
    // Clients of AMQP 1.0 write an underscore, as the binding allows.
    if (/^cloudEvents[:_]/.test(name)) {
      if (typeof value === "object" && value !== null) return "one of its cloudEvents: headers is a table";
      // Two ids that differ in such bytes only would be one event to an inbox.
      if (garbled.includes(name)) return "one of its cloudEvents: headers is not UTF-8";
      attributes.push([name.slice(prefix.length), textOf(value)]);
    }
    // Headers with x- are the server's own, such as x-delivery-count.
    else if (!name.startsWith("x-")) others.push([name, textOf(value)]);
  }
  const event = fromAttributes(Object.fromEntries(attributes), Object.fromEntries(others), owned(content));
  return event ?? "it has no cloudEvents:id, or no cloudEvents:type, and is no event";
}

/** The client's bytes may be a view into a larger buffer, which a waiting delivery would keep in memory. */
const owned = (content: Buffer): Uint8Array =>
  content.byteLength === content.buffer.byteLength ? new Uint8Array(content.buffer) : new Uint8Array(content);

/** Other producers write numbers, booleans and tables into headers; ours are texts. */
function textOf(value: TableValue): string {
  if (typeof value === "string") return value;
  if (value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
