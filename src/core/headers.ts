import { show, WaybillError } from "./errors.ts";
import type { Envelope } from "./event.ts";

const token = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,255}$/;
/** CC and BCC make RabbitMQ send copies to other queues. */
const reserved = /^(ce[-_]|nats-|x-|waybill-|content-type$|b?cc$)/i;
const misread = /[\0\r\n]/;
/** The most bytes that an event's headers take: in a message by their names and values, in the outbox table as JSON. */
export const maxHeadersBytes = 16 * 1024;

/**
 * Refuses what some broker would misread: a header that ends a line early, one that turns a broker's own feature on
 * (Nats-Rollup deletes messages), or one that hides an attribute of the message format.
 */
export function checkHeaders(headers: Readonly<Record<string, string>>): void {
  if (!isPlain(headers)) {
    // The entries of a Map or of fetch's Headers are not its properties: they would be dropped in silence.
    throw new WaybillError("INVALID_HEADER", `headers must be a plain object of strings, not ${show(headers)}: use Object.fromEntries`);
  }
  let total = 0;
  for (const [name, value] of Object.entries(headers)) {
    const shown = JSON.stringify(name.slice(0, 64));
    if (!token.test(name)) {
      throw new WaybillError(
        "INVALID_HEADER",
        `header name ${shown} must be 1 to 255 token characters (letters, digits, ! # $ % & ' * + . ^ _ \` | ~ -)`,
      );
    }
    if (reserved.test(name)) {
      throw new WaybillError(
        "RESERVED_HEADER",
        `header name ${shown} is reserved: choose one that does not start with ce-, ce_, nats-, x- or waybill-, and is not content-type, cc or bcc`,
      );
    }
    if (typeof value !== "string") {
      throw new WaybillError("INVALID_HEADER", `header ${shown} must be a string, not ${typeof value}`);
    }
    if (misread.test(value) || !value.isWellFormed()) {
      throw new WaybillError("INVALID_HEADER", `header ${shown} holds CR, LF, NUL or half a character: encode it first (base64, percent)`);
    }
    total += Buffer.byteLength(name) + Buffer.byteLength(value);
  }
  if (total > maxHeadersBytes) throw tooLong(`${total} bytes`);
}

/** Names under which a broker, or the message format on one, has something of its own. */
const taken = /^(ce[-_]|cloudevents:|nats-|content-type$|b?cc$)/i;

/**
 * What a sink refuses, whoever calls it: a header in the place of an attribute, which readers would take for it, and half a character,
 * which becomes another one. Letters have headers that other programs chose, and our own `waybill-…`: these pass.
 */
export function checkSent({ id, type, aggregateId, aggregateType, contentType, idempotencyKey, headers }: Envelope, source: string): void {
  for (const text of [id, type, aggregateId, aggregateType, contentType, source, idempotencyKey ?? ""])
    if (!text.isWellFormed())
      throw new WaybillError("INVALID_DRAFT", `event ${show(id)} cannot be sent: ${show(text)} holds half a character`);
  for (const name in headers) {
    const shown = JSON.stringify(name.slice(0, 64));
    if (taken.test(name))
      throw new WaybillError("RESERVED_HEADER", `event ${show(id)} has a header ${shown}, which is an attribute's or a broker's`);
    if (!name.isWellFormed() || !headers[name]!.isWellFormed())
      throw new WaybillError(
        "INVALID_HEADER",
        `event ${show(id)} has a header ${shown} with half a character: encode it first (base64, percent)`,
      );
  }
}

/** For a broker that takes any text as a topic. */
export function checkTopicText(topic: string): void {
  if (!topic.isWellFormed()) throw new WaybillError("ROUTE_FAILED", `the topic ${show(topic)} holds half a character`);
}

/** Refuses as well what the outbox table would refuse. */
export function checkNewHeaders(headers: Readonly<Record<string, string>>): void {
  checkHeaders(headers);
  const bytes = Buffer.byteLength(JSON.stringify(headers));
  if (bytes > maxHeadersBytes) throw tooLong(`${bytes} bytes as JSON`);
}

const tooLong = (taken: string): WaybillError =>
  new WaybillError("INVALID_HEADER", `headers take ${taken}, more than ${maxHeadersBytes}: move data into the payload`);

function isPlain(value: unknown): boolean {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
