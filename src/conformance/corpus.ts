import { systemClock, type Clock } from "../core/clock.ts";
import { DEFAULT_MAX_PAYLOAD_BYTES } from "../core/draft.ts";
import { aggregateKey, type Envelope } from "../core/event.ts";
import { uuidv7 } from "../core/ids.ts";
import { systemRandom } from "../core/random.ts";
import { within as inTime } from "../core/time.ts";

const newId = uuidv7(systemClock, systemRandom);
let seq = 0n;

/** An event with everything in place; `change` says what is particular about it. */
export function sampleEvent(change: Partial<Envelope> = {}): Envelope {
  seq += 1n;
  return {
    id: newId(),
    seq,
    aggregateType: "Order",
    aggregateId: "order-1",
    type: "OrderPlaced",
    eventVersion: 1,
    data: utf8(`{"n":${seq}}`),
    contentType: "application/json",
    headers: {},
    idempotencyKey: null,
    createdAt: new Date(1_767_225_600_123),
    ...change,
  };
}

/** Events that a careless adapter changes on the way, each with what it is about. */
export function difficultEvents(): readonly (readonly [about: string, event: Envelope])[] {
  return [
    ["an empty payload", sampleEvent({ data: new Uint8Array(0) })],
    ["characters of four bytes", sampleEvent({ data: utf8(`{"name":"𝒲aybill 🚚 دفتر"}`), aggregateId: "🚚-𝒲", type: "Lieferung🚚" })],
    ["NUL within the payload", sampleEvent({ data: utf8("a\0b\0") })],
    [
      "bytes that are not UTF-8",
      sampleEvent({ data: Uint8Array.from({ length: 256 }, (_, i) => i), contentType: "application/octet-stream" }),
    ],
    ["a view into a larger buffer", sampleEvent({ data: new Uint8Array([9, 9, 1, 2, 3, 9]).subarray(2, 5) })],
    ["a number above 2^53 in JSON", sampleEvent({ data: utf8(`{"n":9007199254740993,"x":1.10, "y" : 1e400}`) })],
    ["a seq above 2^53", sampleEvent({ seq: 9_007_199_254_740_993n })],
    [
      "half a character, escaped and as bytes",
      sampleEvent({ data: Buffer.concat([utf8('{"x":"\\ud83d"}'), Buffer.from([0xed, 0xa0, 0xbd])]) }),
    ],
    ["a payload of one byte less than the usual limit", sampleEvent({ data: new Uint8Array(DEFAULT_MAX_PAYLOAD_BYTES - 1).fill(0x61) })],
    ["a payload of the usual limit", sampleEvent({ data: new Uint8Array(DEFAULT_MAX_PAYLOAD_BYTES).fill(0x61) })],
    ["a payload of 200 KiB", sampleEvent({ data: Uint8Array.from({ length: 200 * 1024 }, (_, i) => (i * 31) & 0xff) })],
    ["a byte order mark", sampleEvent({ data: utf8("\ufeff{}") })],
    [
      "headers",
      sampleEvent({
        headers: { traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Tenant: "Zoë 🚚 %41 \t;,=\"'", empty: "" },
      }),
    ],
    ["names with marks of their own", sampleEvent({ aggregateType: "a.b/c*>%", aggregateId: "x y'\"\\;--", type: "a{b}#c" })],
    [
      "every optional field",
      sampleEvent({ eventVersion: 2_147_483_647, idempotencyKey: "key/1 é", contentType: 'text/plain; charset="utf-8"' }),
    ],
    ["the first millisecond", sampleEvent({ createdAt: new Date(0) })],
  ];
}

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** For comparison: bytes as plain arrays, so that a Buffer equals a Uint8Array of the same bytes. */
export function comparable(event: Envelope): object {
  return {
    ...event,
    data: Buffer.from(event.data).toString("hex"),
    headers: { ...event.headers },
    createdAt: event.createdAt.toISOString(),
  };
}

export const never = (): AbortSignal => new AbortController().signal;

export function idsByAggregate(events: readonly Envelope[]): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const event of events) (found[aggregateKey(event)] ??= []).push(event.id);
  return found;
}

/** Rejects when `work` takes too long, so that a hang is a failure with a name. */
export async function within<T>(ms: number, what: string, work: PromiseLike<T>, clock: Clock = systemClock): Promise<T> {
  const done = Promise.resolve(work).then((value) => ({ value }));
  const first = await inTime(clock, ms, done);
  if (first === null) throw new Error(`${what} took longer than ${ms} ms`);
  return first.value;
}

/** Resolves when `work` has not ended after `ms`. Only waiting shows that something does not happen. */
export async function quiet(ms: number, what: string, work: Promise<unknown>, clock: Clock = systemClock): Promise<void> {
  const happened = work.then(
    () => true,
    () => true,
  );
  if (await inTime(clock, ms, happened)) throw new Error(what);
}
