import type { Claim, Outcome } from "../contracts/outbox-store.ts";
import type { Outgoing, Sink } from "../contracts/sink.ts";
import { toAttributes } from "../core/cloudevents.ts";
import { asError, WaybillError } from "../core/errors.ts";
import { aggregateKey } from "../core/event.ts";
import { checkHeaders } from "../core/headers.ts";
import { deathsToPark } from "../core/retry.ts";
import { tooLargeToRead } from "../core/within-bytes.ts";
import { isToBeRead, type FedWindow } from "./feed.ts";
import { type Route, topicOf } from "./route.ts";

/** A claim on its way through the relay, with what is worked out once. The sink is given parcels. */
export interface Parcel extends Outgoing {
  /** Replaced once its payload was read. */
  claim: Claim;
  envelope: Claim["envelope"];
  readonly window: FedWindow;
  /** Names its aggregate. */
  readonly aggregate: string;
  /** Why it cannot be sent. This counts when the parcel's turn comes, and not before the parcels ahead of it are sent. */
  readonly fault: Error | null;
  /** Its payload is still to be read. */
  unread: boolean;
  /** The sink has it. */
  sent: boolean;
  /** The next event of its aggregate that is on its way. Only the order changes it. */
  next: Parcel | null;
  /** Set by the order when it was not published. */
  stop: Stop | null;
}

/** An event that was not published. It refers to no parcel: that would keep the payloads of a whole window in memory. */
export interface Stop {
  readonly seq: bigint;
  readonly aggregate: string;
}

/** What became of a parcel. */
export interface Concluded {
  readonly parcel: Parcel;
  readonly outcome: Outcome;
}

interface Packing {
  readonly route: Route;
  readonly topics: ReadonlySet<string> | null;
  readonly source: string;
  readonly sink: Pick<Sink, "name" | "can">;
}

/** A window's claims as parcels, in their order. Never throws: an error becomes the `fault` of its parcel. */
export function pack(window: FedWindow, { route, topics, source, sink }: Packing): readonly Parcel[] {
  const toBeRead = isToBeRead(window.claims);
  return window.claims.map((claim) => {
    const { envelope } = claim;
    let [topic, fault]: [string, Error | null] = ["", faultOf(claim)];
    try {
      topic = topicOf(route, envelope);
      if (topics?.has(topic) === false) throw new WaybillError("ROUTE_FAILED", `the topic ${topic} is not among the relay's topics`);
      if (fault === null) {
        checkHeaders(envelope.headers); // plain SQL may have written any
        checkSize(claim, source, sink);
      }
    } catch (error) {
      fault ??= asError(error);
    }
    const aggregate = aggregateKey(envelope);
    return { claim, envelope, topic, source, window, aggregate, fault, unread: toBeRead, sent: false, next: null, stop: null };
  });
}

function faultOf({ deaths, unreadable }: Claim): Error | null {
  if (deaths >= deathsToPark)
    return new WaybillError("CRASHED_RELAY", `the relay died ${deaths} times in a row while it had this event alone in hand`);
  return unreadable === undefined ? null : new WaybillError("ROW_UNREADABLE", unreadable);
}

/** No character takes more bytes in UTF-8 than this for each of its code units. */
const mostBytes = 3;
/** Room for the names of all attributes, and for the values that are not columns. */
const besideBytes = 1_024;

function checkSize({ envelope, unread = 0 }: Claim, source: string, { name, can }: Packing["sink"]): void {
  const { aggregateId, id, type, contentType, aggregateType, idempotencyKey, headers, data } = envelope;
  let units = 2 * aggregateId.length + id.length + type.length + contentType.length + aggregateType.length + source.length;
  if (idempotencyKey !== null) units += idempotencyKey.length;
  for (const header in headers) units += header.length + headers[header]!.length;
  const fits = unread + data.byteLength + mostBytes * units + besideBytes <= can.maxBytes; // whatever its characters are
  const bytes = fits ? 0 : unread + sizeOf(envelope, source);
  if (bytes > can.maxBytes)
    throw new WaybillError("MESSAGE_TOO_LARGE", `the message takes ${bytes} bytes, and ${name} takes ${can.maxBytes}`);
  const tooLarge = tooLargeToRead(unread);
  if (tooLarge !== null) throw new WaybillError("ROW_UNREADABLE", tooLarge);
}

function sizeOf(envelope: Claim["envelope"], source: string): number {
  let bytes = envelope.data.byteLength;
  for (const texts of [toAttributes(envelope, source), envelope.headers]) {
    for (const [name, value] of Object.entries(texts)) bytes += Buffer.byteLength(name) + Buffer.byteLength(value);
  }
  return bytes;
}
