import type { Envelope } from "../../core/event.ts";
import type { PgRow } from "./connection.ts";

/** What a Date can hold: `available_at` may be 'infinity', which is later than any. */
const lastMs = 8_640_000_000_000_000;

/** Milliseconds since 1970, whatever time zone and date style the session has. */
export const ms = (moment: string): string =>
  `(CASE WHEN isfinite(${moment}) THEN least(floor(extract(epoch FROM ${moment}) * 1000), ${lastMs})
         WHEN ${moment} = 'infinity' THEN ${lastMs} WHEN ${moment} = '-infinity' THEN -${lastMs} END)::bigint`;

/** The columns that make an envelope, from the outbox table named `o`. */
export const envelopeColumns = `o.seq, o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version, o.payload,
  encode(o.payload_bytes, 'hex') AS payload_hex, o.content_type, o.headers::text AS headers, o.idempotency_key, ${ms("o.created_at")} AS created_ms`;

export function envelopeOf(row: PgRow): Envelope {
  return {
    seq: BigInt(row["seq"]!),
    id: row["id"]!,
    aggregateType: row["aggregate_type"]!,
    aggregateId: row["aggregate_id"]!,
    type: row["event_type"]!,
    eventVersion: Number(row["event_version"]),
    data: dataOf(row),
    contentType: row["content_type"]!,
    headers: headersOf(row["headers"]!),
    idempotencyKey: row["idempotency_key"] ?? null,
    createdAt: dateOf(row["created_ms"]),
  };
}

function dataOf(row: PgRow): Uint8Array {
  const text = row["payload"] ?? null;
  return text === null ? Buffer.from(row["payload_hex"] ?? "", "hex") : Buffer.from(text, "utf8");
}

/** Plain SQL may have put any JSON there: what is not an object of strings is carried as text, never dropped. */
function headersOf(json: string): Readonly<Record<string, string>> {
  const parsed: unknown = JSON.parse(json);
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return {};
  return Object.fromEntries(Object.entries(parsed).map(([name, held]) => [name, typeof held === "string" ? held : JSON.stringify(held)]));
}

export const dateOf = (value: string | null | undefined): Date => new Date(Number(value));
export const dateOrNull = (value: string | null | undefined): Date | null => (value === null || value === undefined ? null : dateOf(value));

/** An array of numbers, as PostgreSQL writes and reads it. */
export const list = (numbers: Iterable<number | bigint>): string => `{${[...numbers].join(",")}}`;
export function bigints(array: string | null | undefined): bigint[] {
  const inside = (array ?? "{}").slice(1, -1);
  return inside === "" ? [] : inside.split(",").map(BigInt);
}

/** Added within a span of milliseconds, as `spanOf` gives it: what tells the database which partitions to look into. */
export const addedWithin = (from: string, to: string): string =>
  `created_at >= to_timestamp(${from}::bigint / 1000.0) AND created_at < to_timestamp(${to}::bigint / 1000.0)`;
export const spanOf = (ms: readonly number[]): [from: number, to: number] =>
  ms.reduce<[number, number]>(([from, to], at) => [Math.min(from, at), Math.max(to, at + 1)], [ms[0] ?? 0, ms[0] ?? 0]);

/** PostgreSQL's text holds neither NUL nor half a character. */
export const storable = (text: string): string => text.toWellFormed().replaceAll("\0", "\ufffd");
