import type { Clock } from "../../core/clock.ts";
import type { Cells } from "../kit/status.ts";
import type { WrittenLease } from "../kit/expiry.ts";
import { maxMarkBytes } from "../../core/letter.ts";
import { maxHeadersText, readRow, type ReadRow } from "../kit/stored.ts";
import { bytesOf, type SqliteRow } from "../../drivers/sqlite/connection.ts";

/**
 * Reads text that plain SQL may have written as bytes: client libraries end the process over text that is not UTF-8, or cut it at a NUL.
 * SQLite does not enforce column types either: a value that is no text is read as NULL.
 */
export const foreign = (column: string, most = maxMarkBytes): string =>
  `CASE WHEN typeof(${column}) = 'text' THEN substr(CAST(${column} AS BLOB), 1, ${most + 1}) END`;
const named = (...names: readonly string[]): string => names.map((name) => `${foreign(`o.${name}`)} AS ${name}`).join(", ");

/** Client libraries cannot read integers beyond 2^53. */
export const countOf = (column: string): string =>
  `CASE WHEN typeof(${column}) = 'integer' THEN max(0, min(${column}, 2147483647)) ELSE 0 END`;
const isCount = (column: string): string => `(typeof(${column}) = 'integer' AND ${column} BETWEEN 0 AND 2147483647)`;

/** The columns that make an envelope without its data, from the outbox table named `o`. */
export const envelopeColumns = `CAST(o.seq AS TEXT) AS seq, ${named("id", "aggregate_type", "aggregate_id", "event_type", "content_type", "idempotency_key", "created_at")},
  o.idempotency_key IS NOT NULL AS has_key, ${foreign("o.headers", maxHeadersText)} AS headers,
  CASE WHEN ${isCount("o.event_version")} THEN o.event_version END AS event_version, NOT ${isCount("o.retry_count")} AS miscounted,
  octet_length(o.payload) IS NULL AND octet_length(o.payload_bytes) IS NULL AS empty`;
export const retryColumn = `${countOf("o.retry_count")} AS retry_count`;
export const dataOf = "CAST(coalesce(o.payload, o.payload_bytes) AS BLOB)";
export const dataColumn = `${dataOf} AS data`;
/** SQLite knows the size without reading the payload. */
export const sizeOf = "coalesce(octet_length(o.payload), octet_length(o.payload_bytes), 0)";
/**
 * What a scan may read of many rows: nothing of it lies behind the payload. SQLite walks through all pages of a payload to read a column
 * behind it, and to tell whether it is NULL: 5 ms for 8 MiB.
 */
export const lightColumns = `CAST(o.seq AS TEXT) AS seq, ${named("aggregate_type", "aggregate_id")}, ${sizeOf} AS size, min(octet_length(o.headers), ${maxHeadersText}) AS headers_size`;

const nothing = new Uint8Array(0);

export function readEnvelope(row: SqliteRow, data: unknown): ReadRow {
  const faults: string[] = [];
  if (Number(row["miscounted"]) === 1) faults.push("retry_count is not a whole number from 0 to 2147483647");
  if (Number(row["empty"]) === 1) faults.push("there is neither payload nor payload_bytes");
  const stored = {
    seq: BigInt(row["seq"] as string),
    id: blobOf(row["id"]),
    aggregateType: blobOf(row["aggregate_type"]),
    aggregateId: blobOf(row["aggregate_id"]),
    type: blobOf(row["event_type"]),
    eventVersion: Number(row["event_version"]),
    data: blobOf(data) ?? nothing,
    contentType: blobOf(row["content_type"]),
    headers: blobOf(row["headers"]),
    idempotencyKey: Number(row["has_key"]) === 1 ? blobOf(row["idempotency_key"]) : undefined,
    createdAt: dateOf(textOf(row["created_at"])),
  };
  return readRow(stored, faults);
}

/** An aggregate's name, from a row with `lightColumns`. Aggregates whose names cannot be carried may share one. */
export const nameOf = (row: SqliteRow): string => `${textOf(row["aggregate_type"])}\0${textOf(row["aggregate_id"])}`;

const blobOf = (value: unknown): Uint8Array | null => (value === null || value === undefined ? null : bytesOf(value));

/** The text of a column that was read as `foreign`. Empty if the column holds no text. */
export function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  const bytes = blobOf(value);
  return bytes === null ? "" : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
}

const written = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[+-]\d\d:\d\d)?)?$/i;

/** Our timestamps end in Z. SQLite's CURRENT_TIMESTAMP, which plain SQL may use, is UTC without a zone. An invalid Date if it is none. */
export function dateOf(value: unknown): Date {
  const [, day, time = "00:00", zone = "Z"] = written.exec(String(value)) ?? [];
  return new Date(day === undefined ? Number.NaN : `${day}T${time}${zone.toUpperCase()}`);
}

/** Null for an invalid date: one row must not make a whole list fail. */
export function dateOrNull(value: unknown): Date | null {
  const date = dateOf(textOf(value));
  return Number.isNaN(date.getTime()) ? null : date;
}

/** For `json_each`. SQLite cuts a JSON string at a NUL, and a client makes half a character U+FFFD when it binds one. */
export const jsonOf = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) => (typeof part === "string" ? part.replaceAll("\0", "\ufffd").toWellFormed() : part));

export const iso = (ms: number): string => new Date(ms).toISOString();

/** A renewal may by chance have the same expiry as the one before, but not twice in a row, and two renewals take less than a lease. */
export function leaseOf(row: SqliteRow, clock: Clock): WrittenLease {
  const renewal = String(row["expires_at"]);
  return { renewal, leftMs: Date.parse(renewal) - clock.now(), ttlMs: Number(row["ttl_ms"]) };
}

/** Code and text of an event's failure. Plain SQL may have written a text without a code. */
export const toldError = "coalesce(nullif(error_code, '') || ': ', '') || coalesce(last_error, '')";
/** Whether a text begins with a value. The value has to be bound twice. */
export const beginsWith = (text: string): string => `substr(${text}, 1, length(?)) = ?`;

export const cells: Cells<SqliteRow> = {
  text: (row, name) => (typeof row[name] === "object" ? textOf(row[name]) : String(row[name])),
  textOrNull: (row, name) => (row[name] === null ? null : textOf(row[name])),
  number: (row, name) => Number(row[name]),
  isSet: (row, name) => Number(row[name]) === 1,
  dateOrNull: (row, name) => dateOrNull(row[name]),
};
