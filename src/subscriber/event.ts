import { WaybillError } from "../core/errors.ts";
import type { Envelope } from "../core/event.ts";
import { describeIssue, type OutputOf, type StandardSchema } from "../core/standard-schema.ts";

/** What a handler is given. */
export interface SubscriberEvent<Type extends string = string, Payload = unknown> extends Omit<Envelope, "type"> {
  /** The key to pass to another system when an effect leaves this database. */
  readonly id: string;
  readonly topic: string;
  readonly type: Type;
  /** The decoded JSON, checked by the catalogue's schema if there is one; the bytes for any other content type. */
  readonly payload: Payload;
  /** The bytes as they came. */
  readonly data: Uint8Array;
}

/**
 * What the handler does with `tx` commits together with the inbox's mark, or not at all. The handler may run again after a failure.
 * The signal aborts at the time limit and on `stop`; `tx` must not be used after that.
 */
export type Handler<Event extends SubscriberEvent, Tx> = (event: Event, tx: Tx, signal: AbortSignal) => void | Promise<void>;

/**
 * Takes several events of one transaction at once, so that one statement can replace many. Each aggregate's events come in order. All of
 * the events commit together, or none does. After a failure the handler gets one event at a time.
 */
export type BatchHandler<Event extends SubscriberEvent, Tx> = (
  events: readonly Event[],
  tx: Tx,
  signal: AbortSignal,
) => void | Promise<void>;

/**
 * Schemas by event type, as an outbox's catalogue holds them. Payloads travel as JSON: a schema has to accept the JSON form
 * of the payloads it allows (an ISO date as text, not a Date).
 */
export type Schemas = Readonly<Record<string, StandardSchema | { readonly schema: StandardSchema }>>;

type SchemaOf<Entry> = Entry extends StandardSchema ? Entry : Entry extends { readonly schema: infer S } ? S : never;

/** One handler for each event type; "*" is for all types that have none of their own. */
export type Handlers<Events extends Schemas, Tx> = {
  readonly [Type in keyof Events & string]?: Handler<EventOf<Events, Type>, Tx>;
} & { readonly "*"?: Handler<SubscriberEvent, Tx> };

/** The same for batch handlers. A type has a handler here or in `Handlers`, not in both. */
export type BatchHandlers<Events extends Schemas, Tx> = {
  readonly [Type in keyof Events & string]?: BatchHandler<EventOf<Events, Type>, Tx>;
} & { readonly "*"?: BatchHandler<SubscriberEvent, Tx> };

type EventOf<Events extends Schemas, Type extends keyof Events & string> = SubscriberEvent<
  string extends keyof Events ? string : Type,
  OutputOf<SchemaOf<Events[Type]>>
>;

export function schemaIn(events: Schemas | undefined, type: string): StandardSchema | null {
  if (events === undefined || !Object.hasOwn(events, type)) return null;
  const entry = events[type];
  if (entry === undefined) return null;
  return "~standard" in entry ? entry : entry.schema;
}

/** Rejects with INVALID_PAYLOAD when the data is not what its content type or its schema says. */
export async function decode(topic: string, envelope: Envelope, schema: StandardSchema | null): Promise<SubscriberEvent> {
  const raw = isJson(envelope.contentType) ? parse(envelope) : envelope.data;
  const payload = schema === null ? raw : await validate(schema, raw, envelope);
  const { id, seq, aggregateType, aggregateId, type, eventVersion, data, contentType, headers, idempotencyKey, createdAt } = envelope;
  return { id, seq, topic, aggregateType, aggregateId, type, eventVersion, payload, data, contentType, headers, idempotencyKey, createdAt };
}

function isJson(contentType: string): boolean {
  return contentType === "application/json" || /^\s*[^\s/;]+\/([^\s;]+\+)?json\s*(;|$)/i.test(contentType);
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function parse({ data, type }: Envelope): unknown {
  try {
    return JSON.parse(utf8.decode(data));
  } catch (cause) {
    // The parser's own message quotes the payload, which must not end up in logs and headers.
    throw new WaybillError("INVALID_PAYLOAD", `the data of ${type} is not the JSON that its content type says`, { cause });
  }
}

async function validate(schema: StandardSchema, payload: unknown, { type }: Envelope): Promise<unknown> {
  const result = await schema["~standard"].validate(payload);
  if (result.issues === undefined) return result.value;
  throw new WaybillError("INVALID_PAYLOAD", `the payload of ${type} does not match its schema: ${describeIssue(result.issues)}`);
}
