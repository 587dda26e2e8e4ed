import type { Envelope } from "../../core/event.ts";
import { bytesOf, type SqliteRow } from "../../sqlite/connection.ts";

/** The columns that make an envelope, from the outbox table named `o`. */
export const envelopeColumns =
  "o.seq, o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version, o.payload, o.payload_bytes, o.content_type, o.headers, o.idempotency_key, o.created_at";

export function envelopeOf(row: SqliteRow): Envelope {
  return {
    seq: BigInt(row["seq"] as number),
    id: String(row["id"]),
    aggregateType: String(row["aggregate_type"]),
    aggregateId: String(row["aggregate_id"]),
    type: String(row["event_type"]),
    eventVersion: Number(row["event_version"]),
    data: row["payload"] === null ? bytesOf(row["payload_bytes"]) : Buffer.from(String(row["payload"]), "utf8"),
    contentType: String(row["content_type"]),
    headers: headersOf(row["headers"]),
    idempotencyKey: row["idempotency_key"] === null ? null : String(row["idempotency_key"]),
    createdAt: dateOf(row["created_at"]),
  };
}

/** Plain SQL may have put any JSON there: what is not an object of strings is carried as text, never dropped. */
export function headersOf(value: unknown): Readonly<Record<string, string>> {
  const parsed: unknown = JSON.parse(String(value));
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return {};
  return Object.fromEntries(Object.entries(parsed).map(([name, held]) => [name, typeof held === "string" ? held : JSON.stringify(held)]));
}

/** Our own timestamps end in Z; SQLite's CURRENT_TIMESTAMP, which plain SQL may use, is UTC without saying so. */
export function dateOf(value: unknown): Date {
  const text = String(value);
  return new Date(/[zZ]|[+-]\d\d:?\d\d$/.test(text) ? text : `${text.replace(" ", "T")}Z`);
}

export const dateOrNull = (value: unknown): Date | null => (value === null || value === undefined ? null : dateOf(value));
export const iso = (ms: number): string => new Date(ms).toISOString();
