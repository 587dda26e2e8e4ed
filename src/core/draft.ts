import { types } from "node:util";
import { asError, show, WaybillError } from "./errors.ts";
import type { Draft, Row } from "./event.ts";
import { checkNewHeaders, maxHeadersBytes } from "./headers.ts";
import { canonicalId, type NewId } from "./ids.ts";

/** The strictest broker's default (Kafka and NATS: 1 MiB with everything) leaves room for headers above this. */
export const DEFAULT_MAX_PAYLOAD_BYTES = 256 * 1024;
/** The most bytes that a message takes besides the payload: the user's headers, then the attributes with what a broker adds. */
export const BESIDE_PAYLOAD_BYTES = maxHeadersBytes + 4 * 1024;
const maxNameBytes = 255;

/** Checks and encodes a draft. Every refusal happens here, before anything is written. */
export function prepare(draft: Draft, newId: NewId, maxPayloadBytes: number): Row {
  if (typeof draft !== "object" || draft === null) {
    throw new WaybillError("INVALID_DRAFT", `an event must be an object, not ${show(draft)}`);
  }
  for (const field of Object.keys(draft)) {
    if (!fields.has(field)) {
      throw new WaybillError("INVALID_DRAFT", `unknown field ${show(field)}: an event has ${[...fields].join(", ")}`);
    }
  }
  // Names first: the messages about the rest mention them.
  const type = name("type", draft.type);
  const aggregateType = name("aggregateType", draft.aggregateType);
  const aggregateId = name("aggregateId", draft.aggregateId);
  const headers = draft.headers ?? {};
  checkNewHeaders(headers);
  const payload = encode(draft.payload, type, maxPayloadBytes);
  return {
    id: id(draft.id, newId),
    aggregateType,
    aggregateId,
    type,
    eventVersion: version(draft.eventVersion ?? 1),
    payload,
    contentType: contentType(draft.contentType ?? (typeof payload === "string" ? "application/json" : "application/octet-stream")),
    headers: { ...headers },
    idempotencyKey: draft.idempotencyKey === undefined ? null : name("idempotencyKey", draft.idempotencyKey),
    availableAt: draft.availableAt === undefined ? null : moment(draft.availableAt),
  };
}

const fields = new Set<string>([
  "aggregateType",
  "aggregateId",
  "type",
  "payload",
  "id",
  "eventVersion",
  "contentType",
  "headers",
  "idempotencyKey",
  "availableAt",
] satisfies (keyof Draft)[]);

/** Bytes are copied: a row may be written later than it was made, when the caller has used its buffer again. */
function encode(payload: unknown, type: string, maxBytes: number): string | Uint8Array {
  const encoded = payload instanceof Uint8Array ? payload : json(payload, type);
  const bytes = typeof encoded === "string" ? Buffer.byteLength(encoded) : encoded.byteLength;
  if (bytes > maxBytes) {
    throw new WaybillError("PAYLOAD_TOO_LARGE", `the payload of ${type} takes ${bytes} bytes, more than ${maxBytes}`);
  }
  return typeof encoded === "string" ? encoded : new Uint8Array(encoded);
}

function json(payload: unknown, type: string): string {
  // JSON.stringify would silently misrepresent these, most of them as {}.
  if (types.isPromise(payload)) throw unserialisable(type, "is a promise: await it first");
  if (types.isMap(payload) || types.isSet(payload)) throw unserialisable(type, "is a Map or Set: use Object.fromEntries or an array");
  if (types.isAnyArrayBuffer(payload) || ArrayBuffer.isView(payload)) throw unserialisable(type, "is binary: give it as a Uint8Array");
  let text: string | undefined;
  try {
    text = JSON.stringify(payload);
  } catch (cause) {
    throw unserialisable(type, `cannot be written as JSON: ${asError(cause).message.split("\n")[0]}`, cause);
  }
  if (text === undefined) throw unserialisable(type, `is ${show(payload)}, which JSON cannot hold`);
  return text;
}

function unserialisable(type: string, why: string, cause?: unknown): WaybillError {
  return new WaybillError("PAYLOAD_NOT_SERIALISABLE", `the payload of ${type} ${why}`, cause === undefined ? undefined : { cause });
}

/** Names end up in keys, columns and headers: text that every store and broker keeps byte by byte. */
function name(field: string, value: unknown): string {
  if (typeof value !== "string") {
    throw new WaybillError("INVALID_DRAFT", `${field} must be a string, not ${show(value)}`);
  }
  const bytes = Buffer.byteLength(value);
  if (bytes === 0) throw new WaybillError("INVALID_DRAFT", `${field} must not be empty`);
  if (bytes > maxNameBytes) {
    throw new WaybillError("INVALID_DRAFT", `${field} takes ${bytes} bytes, more than ${maxNameBytes}: ${show(value)}`);
  }
  if (/[\0\r\n]/.test(value) || !value.isWellFormed()) {
    throw new WaybillError("INVALID_DRAFT", `${field} ${show(value)} holds CR, LF, NUL or half a character`);
  }
  return value;
}

function id(given: unknown, newId: NewId): string {
  const chosen = given === undefined ? newId() : given;
  const canonical = typeof chosen === "string" ? canonicalId(chosen) : null;
  if (canonical === null) throw new WaybillError("INVALID_DRAFT", `id ${show(chosen)} is neither a UUID nor a ULID`);
  return canonical;
}

function version(value: number): number {
  if (!Number.isInteger(value) || value < 1 || value > 2_147_483_647) {
    throw new WaybillError("INVALID_DRAFT", `eventVersion must be a whole number from 1 to 2147483647, not ${show(value)}`);
  }
  return value;
}

function contentType(value: unknown): string {
  if (typeof value !== "string" || !/^[\x20-\x7e]{1,255}$/.test(value)) {
    throw new WaybillError("INVALID_DRAFT", `contentType ${show(value)} must be 1 to 255 printable ASCII characters`);
  }
  return value;
}

function moment(value: unknown): Date {
  if (!(value instanceof Date) || Number.isNaN(value.getTime())) {
    throw new WaybillError("INVALID_DRAFT", `availableAt must be a valid Date, not ${show(value)}`);
  }
  // Outside these years, dates written as text no longer sort.
  if (value.getUTCFullYear() < 1970 || value.getUTCFullYear() > 9999) {
    throw new WaybillError("INVALID_DRAFT", `availableAt must lie between 1970 and 9999, not ${value.toISOString()}`);
  }
  return new Date(value);
}
