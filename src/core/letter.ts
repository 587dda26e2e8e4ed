import { createHash } from "node:crypto";
import type { Envelope } from "./event.ts";
import { isIdOfBytes } from "./unreadable.ts";

export interface Letter {
  readonly envelope: Envelope;
  readonly topic: string;
  readonly consumer: string;
  readonly error: string;
  readonly attempts: number;
  /** @default 1 */
  readonly handlerVersion?: number;
  /** The message as it came, where it could not be read as an event. The envelope then only names its place. */
  readonly raw?: Uint8Array;
}

/** What a store keeps of a letter. Every text fits its column on every store, whatever the message held. */
export interface LetterRow {
  readonly consumer: string;
  readonly topic: string;
  readonly id: string;
  /** Of the message: what comes later under the same id and is not the same is a letter of its own. */
  readonly digest: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly eventType: string;
  /** The envelope without its data, as JSON: exact, where the columns above may be cut. */
  readonly envelope: string;
  readonly data: Uint8Array;
  readonly raw: Uint8Array | null;
  readonly errorCode: string;
  readonly error: string;
  readonly attempts: number;
  readonly handlerVersion: number;
}

export function letterRow({ envelope, topic, consumer, error, attempts, handlerVersion = 1, raw }: Letter): LetterRow {
  const { data, seq, createdAt, ...rest } = envelope;
  const texts = JSON.stringify({ ...rest, seq: String(seq), createdAt: createdAt.toISOString() });
  const [, code = "", text = error] = /^([A-Z][A-Z0-9_]{1,63}): ([^]*)$/.exec(error) ?? [];
  return {
    consumer: fit(consumer),
    topic: fit(topic),
    id: letterId(envelope.id),
    // Where the id says which bytes it was, a broker may add something to them when it delivers the message again.
    digest: digestOf(Buffer.from(texts), data, ...(raw === undefined || isIdOfBytes(envelope.id) ? [] : [raw])),
    aggregateType: fit(envelope.aggregateType),
    aggregateId: fit(envelope.aggregateId),
    eventType: fit(envelope.type),
    envelope: texts,
    data,
    raw: raw ?? null,
    errorCode: code,
    error: cleaned(text),
    attempts,
    handlerVersion,
  };
}

function digestOf(...parts: readonly Uint8Array[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(`${part.byteLength}:`).update(part);
  return hash.digest("hex");
}

/** How many bytes of an id, a consumer or a topic the inbox's columns take. */
export const maxMarkBytes = 255;

/** Can an inbox mark this id? */
export const markable = (id: string): boolean =>
  id !== "" && Buffer.byteLength(id) <= maxMarkBytes && !id.includes("\0") && id.isWellFormed();

/** What a letter about this id is kept under. */
export const letterId = (id: string): string => (markable(id) ? id : `sha256:${createHash("sha256").update(id).digest("hex")}`);

/** The text, cut and cleaned so that a column of that many bytes takes it on every store. */
export function fit(text: string): string {
  const clean = cleaned(text);
  if (Buffer.byteLength(clean) <= maxMarkBytes) return clean;
  // Cut between two characters, not inside one.
  return Buffer.from(clean)
    .subarray(0, maxMarkBytes)
    .toString("utf8")
    .replace(/\ufffd+$/, "");
}

const cleaned = (text: string): string => text.toWellFormed().replaceAll("\0", "\ufffd");
