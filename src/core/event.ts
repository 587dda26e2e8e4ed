/** What the application hands over. */
export interface Draft<Type extends string = string, Payload = unknown> {
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly type: Type;
  /** Encoded as JSON, or taken as it is when it is a Uint8Array. */
  readonly payload: Payload;
  /** A UUID or ULID; a UUIDv7 is made otherwise. */
  readonly id?: string;
  /** @default 1 */
  readonly eventVersion?: number;
  /** @default "application/json", or "application/octet-stream" for bytes */
  readonly contentType?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Adding twice with one key adds once, for as long as the key is kept. */
  readonly idempotencyKey?: string;
  /** The event is not published before this moment. It joins its aggregate's order when it becomes available. */
  readonly availableAt?: Date;
}

/** A checked and encoded draft, ready to be inserted. `payload` is text or bytes, exactly as it will travel. */
export interface Row extends Omit<Envelope, "seq" | "data" | "createdAt"> {
  readonly payload: string | Uint8Array;
  readonly availableAt: Date | null;
}

export interface Added {
  /** The stored event's id: with a used idempotency key, the id of the event that was stored first. */
  readonly id: string;
  /** True when the idempotency key had been used before, and nothing was added now. */
  readonly duplicate: boolean;
}

/** What is stored and what travels. */
export interface Envelope {
  readonly id: string;
  /** Store-assigned, ascending. */
  readonly seq: bigint;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly type: string;
  readonly eventVersion: number;
  /** The stored bytes, never parsed on the way. */
  readonly data: Uint8Array;
  readonly contentType: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly idempotencyKey: string | null;
  readonly createdAt: Date;
}

/** The states that an operator sees. PUBLISHING is derived: a pending row inside a window that a live lease has claimed. */
export const states = ["PENDING", "PUBLISHING", "PUBLISHED", "FAILED", "BLOCKED", "DEAD", "DISCARDED"] as const;
export type State = (typeof states)[number];

/** One name for one aggregate, for maps and sets; NUL cannot be part of either half. */
export function aggregateKey(event: { readonly aggregateType: string; readonly aggregateId: string }): string {
  return `${event.aggregateType}\0${event.aggregateId}`;
}
