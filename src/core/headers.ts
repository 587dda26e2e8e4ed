import { show, WaybillError } from "./errors.ts";

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
