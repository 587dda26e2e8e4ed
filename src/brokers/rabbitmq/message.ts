import type { Outgoing } from "../../contracts/sink.ts";
import { fromAttributes, toAttributes } from "../../core/cloudevents.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Envelope } from "../../core/event.ts";
import type { Arrival, OutgoingMessage } from "./driver.ts";
import { shortBytes } from "./names.ts";
import type { TableValue } from "./tables.ts";

const prefix = "cloudEvents:";
/** CC and BCC would send the message to other topics too, x-* belongs to the server, and the client cannot carry __proto__. */
const reserved = /^(cloudEvents[:_]|x-)|^(CC|BCC|__proto__)$/;
/** All headers of a message travel in one frame, and the client has no more room for them. */
const maxHeaderBytes = 60_000;

/** Throws for what AMQP cannot carry: the event is to blame for that. */
export function wireOf({ envelope, source, topic }: Outgoing): OutgoingMessage {
  const { id, type, contentType, data } = envelope;
  for (const [what, text] of Object.entries({ id, type, contentType })) {
    const bytes = Buffer.byteLength(text);
    if (bytes > shortBytes)
      throw new WaybillError("INVALID_DRAFT", `the ${what} of event ${id.slice(0, 64)} takes ${bytes} bytes, and AMQP takes ${shortBytes}`);
  }
  // The content type is a property of the message, and as the binding says no header.
  const attributes = Object.entries(toAttributes(envelope, source)).filter(([name]) => name !== "datacontenttype");
  const own = Object.entries(envelope.headers);
  for (const [name] of own) checkName(name);
  const headers = Object.fromEntries([...attributes.map(([name, value]) => [prefix + name, value] as const), ...own]);
  const wire = {
    routingKey: topic,
    content: Buffer.from(data.buffer, data.byteOffset, data.byteLength),
    messageId: id,
    contentType,
    type,
    timestamp: Math.max(0, Math.floor(envelope.createdAt.getTime() / 1_000)),
    headers,
  };
  const bytes = headerBytes(wire);
  if (bytes > maxHeaderBytes)
    throw new WaybillError(
      "INVALID_HEADER",
      `the headers of event ${id} take ${bytes} bytes, more than ${maxHeaderBytes}: move data into the payload`,
    );
  return wire;
}

function checkName(name: string): void {
  const shown = JSON.stringify(name.slice(0, 64));
  if (reserved.test(name))
    throw new WaybillError("RESERVED_HEADER", `header name ${shown} has a meaning of its own in RabbitMQ: choose another`);
  const bytes = Buffer.byteLength(name);
  if (bytes === 0 || bytes > shortBytes)
    throw new WaybillError("INVALID_HEADER", `header name ${shown} takes ${bytes} bytes, and AMQP takes 1 to ${shortBytes}`);
}

function headerBytes({ headers }: OutgoingMessage): number {
  let bytes = 0;
  for (const [name, value] of Object.entries(headers)) bytes += Buffer.byteLength(name) + Buffer.byteLength(value) + 6;
  return bytes;
}

/** What `maxBytes` counts. */
export const bytesOf = (wire: OutgoingMessage): number => wire.content.byteLength + headerBytes(wire);

/** What a header's name and value take in memory besides their bytes: a message may have thousands of empty ones. */
const valueBytes = 128;

/** What a message counts against the bound in bytes. A nested header is text as JSON, which may be six times as long as it was. */
export function bytesInMemory({ properties, content }: Omit<Arrival, "tag">, envelope: Envelope): number {
  let text = 0;
  for (const [name, value] of Object.entries(envelope.headers)) text += name.length + value.length;
  return content.length + Math.max(properties.raw.length, text) + properties.values * valueBytes;
}

/** An event, or in words why it is none: it came from elsewhere, or is damaged. */
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
    // The server's own, such as x-delivery-count.
    else if (!name.startsWith("x-")) others.push([name, textOf(value)]);
  }
  const event = fromAttributes(Object.fromEntries(attributes), Object.fromEntries(others), owned(content));
  return event ?? "it has no cloudEvents:id, or no cloudEvents:type, and is no event";
}

/** The client's bytes may be a view into all that came with them, which a delivery that waits would keep in memory. */
const owned = (content: Buffer): Uint8Array =>
  content.byteLength === content.buffer.byteLength ? new Uint8Array(content.buffer) : new Uint8Array(content);

/** Other producers write numbers, booleans and tables into headers; ours are texts. */
function textOf(value: TableValue): string {
  if (typeof value === "string") return value;
  if (value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
