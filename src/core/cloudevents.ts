import type { Envelope } from "./event.ts";
import { checkSent } from "./headers.ts";

/** Attribute names of CloudEvents 1.0, and our extensions. Each broker writes them with its own prefix. */
export type Attributes = Readonly<Record<string, string>>;

export function toAttributes(envelope: Envelope, source: string): Attributes {
  const attributes: Record<string, string> = {};
  eachAttribute(envelope, source, (name, value) => void (attributes[name] = value));
  return attributes;
}

/**
 * The attributes one by one, in a fixed order. Sinks write them straight into their buffers, without an object per message. Throws, before
 * the first, for an event that would not come out as it went in: see `checkSent`.
 */
export function eachAttribute(envelope: Envelope, source: string, take: (name: string, value: string) => void): void {
  checkSent(envelope, source);
  take("specversion", "1.0");
  take("id", envelope.id);
  take("type", envelope.type);
  take("source", source);
  take("subject", envelope.aggregateId);
  take("partitionkey", envelope.aggregateId);
  take("time", isoOf(envelope.createdAt));
  take("datacontenttype", envelope.contentType);
  take("aggregatetype", envelope.aggregateType);
  take("eventversion", String(envelope.eventVersion));
  take("sequence", String(envelope.seq));
  if (envelope.idempotencyKey !== null) take("idempotencykey", envelope.idempotencyKey);
}

let second = NaN;
let untilSecond = "";

/** The same as toISOString, which takes as long as all other attributes together. Most events share their second with the last event. */
function isoOf(date: Date): string {
  const ms = date.getTime();
  if (Math.floor(ms / 1_000) !== second) {
    untilSecond = date.toISOString().slice(0, -"000Z".length);
    second = Math.floor(ms / 1_000);
  }
  const rest = ms - second * 1_000;
  return `${untilSecond}${rest < 10 ? "00" : rest < 100 ? "0" : ""}${rest}Z`;
}

/** The reverse of toAttributes. Null when a message has no id or no type: it came from elsewhere, or is damaged. */
export function fromAttributes(attributes: Attributes, headers: Readonly<Record<string, string>>, data: Uint8Array): Envelope | null {
  const { id, type, subject, aggregatetype, sequence, eventversion, time } = attributes as Record<string, string | undefined>;
  // An empty id would make every such message the same event to an inbox.
  if (!id || !type) return null;
  const at = new Date(time ?? 0);
  return {
    id,
    type,
    seq: sequence !== undefined && /^\d{1,19}$/.test(sequence) ? BigInt(sequence) : 0n,
    aggregateType: aggregatetype ?? "",
    aggregateId: subject ?? attributes["partitionkey"] ?? id,
    eventVersion: versionOf(eventversion),
    data,
    contentType: attributes["datacontenttype"] ?? "application/octet-stream",
    headers,
    idempotencyKey: attributes["idempotencykey"] ?? null,
    createdAt: Number.isNaN(at.getTime()) ? new Date(0) : at,
  };
}

function versionOf(text: string | undefined): number {
  const version = text !== undefined && /^\d{1,10}$/.test(text) ? Number(text) : 1;
  return version >= 1 && version <= 2_147_483_647 ? version : 1;
}
