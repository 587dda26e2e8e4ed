import type { Clock } from "../../core/clock.ts";
import type { Envelope } from "../../core/event.ts";
import type { WrittenLease } from "../../core/expiry.ts";
import { bytesOf, type SqliteRow } from "../../sqlite/connection.ts";

/**
 * Text that somebody else's SQL may have written comes as bytes: clients end the process over text that is not UTF-8,
 * or cut it at a NUL.
 */
const foreign = (...names: readonly string[]): string => names.map((name) => `CAST(o.${name} AS BLOB) AS ${name}`).join(", ");

export const aggregateColumns = foreign("aggregate_type", "aggregate_id");

/** The columns that make an envelope, from the outbox table named `o`. */
export const envelopeColumns = `o.seq, ${aggregateColumns}, ${foreign("id", "event_type", "content_type", "headers", "idempotency_key", "created_at")},
  o.event_version, CAST(coalesce(o.payload, o.payload_bytes) AS BLOB) AS data`;

export function envelopeOf(row: SqliteRow): Envelope {
  return {
    seq: BigInt(row["seq"] as number),
    id: textOf(row["id"]),
    aggregateType: textOf(row["aggregate_type"]),
    aggregateId: textOf(row["aggregate_id"]),
    type: textOf(row["event_type"]),
    eventVersion: Number(row["event_version"]),
    data: bytesOf(row["data"]),
    contentType: textOf(row["content_type"]),
    headers: headersOf(textOf(row["headers"])),
    idempotencyKey: row["idempotency_key"] === null ? null : textOf(row["idempotency_key"]),
    createdAt: dateOf(textOf(row["created_at"])),
  };
}

export function textOf(value: unknown): string {
  return typeof value === "string" ? value : Buffer.from(bytesOf(value)).toString("utf8");
}

/** Plain SQL may have put any JSON there: what is not an object of strings is carried as text, never dropped. */
export function headersOf(json: string): Readonly<Record<string, string>> {
  const parsed: unknown = JSON.parse(json);
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

/** A renewal may by chance be written with the moment of the one before, but not twice in a row, and two are less than a lease. */
export function leaseOf(row: SqliteRow, clock: Clock): WrittenLease {
  const renewal = String(row["expires_at"]);
  return { renewal, leftMs: Date.parse(renewal) - clock.now(), ttlMs: Number(row["ttl_ms"]) };
}
