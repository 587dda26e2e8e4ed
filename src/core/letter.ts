import { createHash } from "node:crypto";
import type { Envelope } from "./event.ts";
import type { Reason } from "./reason.ts";
import { isIdOfBytes } from "./unreadable.ts";

export interface Letter extends Reason {
  readonly envelope: Envelope;
  readonly topic: string;
  readonly consumer: string;
  readonly attempts: number;
  /** @default 1 */
  readonly handlerVersion?: number;
  /** The message as it came, where it could not be read as an event. The envelope then only names its place. */
  readonly raw?: Uint8Array;
  /** True where the inbox did not take the whole message, and the letter holds a part of it. @default false */
  readonly cut?: boolean;
  /** The number of the letter that was redriven, and failed again. */
  readonly again?: bigint;
}

/** What a store keeps of a letter. Every text fits its column on every store, whatever the message held. */
export interface LetterRow {
  readonly consumer: string;
  readonly topic: string;
  readonly id: string;
  /** Of the message. A different message that comes later under the same id becomes a letter of its own. */
  readonly digest: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly eventType: string;
  /** The envelope without its data, as JSON: exact, where the columns above may be cut. */
  readonly envelope: string;
  readonly data: Uint8Array;
  readonly raw: Uint8Array | null;
  /** 1, or 0 where a part of the message is missing. */
  readonly whole: number;
  readonly errorCode: string;
  readonly error: string;
  readonly errorDetail: string;
  readonly attempts: number;
  readonly handlerVersion: number;
}

export function letterRow(letter: Letter): LetterRow {
  const { envelope, topic, consumer, code = "", error, detail = "", attempts, handlerVersion = 1, raw, cut = false } = letter;
  const { data, seq, createdAt, ...rest } = envelope;
  const texts = JSON.stringify({ ...rest, seq: String(seq), createdAt: createdAt.toISOString() });
  return {
    consumer: fit(consumer),
    topic: fit(topic),
    id: letterId(envelope.id),
    // An id made from the bytes identifies the message. Its `raw` may differ: a broker may add something when it delivers it again.
    digest: digestOf(Buffer.from(texts), data, ...(raw === undefined || isIdOfBytes(envelope.id) ? [] : [raw])),
    aggregateType: fit(envelope.aggregateType),
    aggregateId: fit(envelope.aggregateId),
    eventType: fit(envelope.type),
    envelope: texts,
    data,
    raw: raw ?? null,
    whole: cut ? 0 : 1,
    errorCode: fit(code).slice(0, 64),
    error: cleaned(error),
    errorDetail: cleaned(detail),
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

/** The id under which a letter about this id is kept. */
export const letterId = (id: string): string => (markable(id) ? id : `sha256:${createHash("sha256").update(id).digest("hex")}`);

/** The text, cut and cleaned so that a column of `maxMarkBytes` takes it on every store. */
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
