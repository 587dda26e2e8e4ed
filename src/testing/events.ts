import { AssertionError } from "node:assert";
import { isDeepStrictEqual } from "node:util";
import type { EventRecord, Operator } from "../contracts/operator.ts";
import type { Envelope } from "../core/event.ts";
import { decode, type SubscriberEvent } from "../subscriber/event.ts";

/** An event as tests look at it. */
export interface TestEvent extends Omit<SubscriberEvent, "topic" | "data"> {
  /** The decoded JSON; the bytes for any other content type. */
  readonly payload: unknown;
}

/** Only the given fields are compared. A payload is compared in its JSON form. */
export type ExpectedEvent<Type extends string = string> = Partial<Omit<TestEvent, "type">> & { readonly type: Type };

/** If the data does not match its content type, the payload is the bytes: a subscriber may have parked the event for that. */
export async function testEvent(envelope: Envelope): Promise<TestEvent> {
  const bytes = { ...envelope, contentType: "application/octet-stream" };
  const { topic: _topic, data: _data, ...event } = await decode("", envelope, null).catch(() => decode("", bytes, null));
  return { ...event, contentType: envelope.contentType, payload: plain(event.payload) };
}

/** The store's committed events after `seq`, oldest first. */
export async function eventsAfter(operator: Operator, seq: bigint): Promise<readonly TestEvent[]> {
  const found: EventRecord[] = [];
  for (let last: EventRecord | undefined; ;) {
    const page = await operator.list({ limit: 500, ...(last === undefined ? {} : { beforeSeq: last.seq }) });
    found.push(...page.filter((record) => record.seq > seq));
    last = page.at(-1);
    if (last === undefined || last.seq <= seq) break;
  }
  const events: TestEvent[] = [];
  for (const record of found.reverse()) events.push(await testEvent({ ...record, data: await dataOf(operator, record) }));
  return events;
}

/** A list leaves large payloads out. */
async function dataOf(operator: Operator, { id, payload: listed, payloadBytes }: EventRecord): Promise<Uint8Array> {
  const payload = listed ?? (await operator.show(id))?.payload ?? null;
  if (payload === null) throw new Error(`the payload of event ${id} takes ${payloadBytes} bytes and cannot be read`);
  return typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
}

/** Fails unless the events are the expected ones, in their order. `what` says what was done with them, such as "added". */
export function assertEvents(events: readonly TestEvent[], expected: readonly ExpectedEvent[], what: string, caller: object): void {
  const wanted = expected.map((event) => ("payload" in event ? { ...event, payload: asJson(event.payload) } : event));
  // Surplus events are shown whole: there is nothing to compare them with.
  const found = events.map((event, i) => (wanted[i] === undefined ? event : fieldsOf(event, Object.keys(wanted[i]))));
  if (isDeepStrictEqual(found, wanted)) return;
  const names = events.map(({ type, aggregateType, aggregateId }) => `${type} of ${aggregateType} ${aggregateId}`);
  throw new AssertionError({
    message:
      events.length === expected.length
        ? `other events were ${what} than expected: ${firstDifference(found, wanted)}`
        : `${counted(expected.length)} expected to be ${what}, not ${events.length}${names.length > 0 ? `: ${names.join(", ")}` : ""}`,
    actual: found,
    expected: wanted,
    stackStartFn: caller as () => void,
  });
}

const counted = (n: number): string => (n === 1 ? "1 event was" : `${n} events were`);

function fieldsOf(event: TestEvent, names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(names.map((name) => [name, (event as unknown as Record<string, unknown>)[name]]));
}

function firstDifference(found: readonly object[], wanted: readonly object[]): string {
  for (const [i, event] of wanted.entries()) {
    for (const [name, value] of Object.entries(event)) {
      const actual = (found[i] as Record<string, unknown>)[name];
      if (!isDeepStrictEqual(actual, value)) return `${name} of the ${ordinal(i)} is ${text(actual)}, not ${text(value)}`;
    }
  }
  return "see the difference";
}

const ordinal = (i: number): string => ["first", "second", "third"][i] ?? `${i + 1}th`;

function text(value: unknown): string {
  const written = JSON.stringify(value, (_, part: unknown) => (typeof part === "bigint" ? `${part}` : part)) ?? String(value);
  return written.length > 200 ? `${written.slice(0, 200)}…` : written;
}

function asJson(payload: unknown): unknown {
  return payload instanceof Uint8Array || payload === undefined ? plain(payload) : JSON.parse(JSON.stringify(payload));
}

/** Client libraries have their own byte classes, which do not compare as equal. */
function plain(payload: unknown): unknown {
  return payload instanceof Uint8Array ? new Uint8Array(payload) : payload;
}
