import type { Envelope } from "./event.ts";

/** Attribute names of CloudEvents 1.0, and our extensions. Each broker writes them with its own prefix. */
export type Attributes = Readonly<Record<string, string>>;

export function toAttributes(envelope: Envelope, source: string): Attributes {
  return {
    specversion: "1.0",
    id: envelope.id,
    type: envelope.type,
    source,
    subject: envelope.aggregateId,
    partitionkey: envelope.aggregateId,
    time: envelope.createdAt.toISOString(),
    datacontenttype: envelope.contentType,
    aggregatetype: envelope.aggregateType,
    eventversion: String(envelope.eventVersion),
    sequence: String(envelope.seq),
    ...(envelope.idempotencyKey === null ? {} : { idempotencykey: envelope.idempotencyKey }),
  };
}

/** The way back. Null when a message lacks what makes it an event: it came from elsewhere, or is damaged. */
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
