import type { Envelope } from "../../core/event.ts";
import type { MysqlRow } from "./connection.ts";

/** Text comes as its bytes: a connection's own character set might not hold it. */
const asBytes = (...names: readonly string[]): string => names.map((name) => `CAST(o.${name} AS BINARY) AS ${name}`).join(", ");

/** The columns that make an envelope, from the outbox table named `o`. */
export const envelopeColumns = `o.seq, o.id, ${asBytes("aggregate_type", "aggregate_id", "event_type", "content_type", "headers", "idempotency_key")},
  o.event_version, o.payload IS NOT NULL AS is_text, COALESCE(CAST(o.payload AS BINARY), o.payload_bytes) AS data, o.created_at`;

export function envelopeOf(row: MysqlRow): Envelope {
  return {
    seq: bigOf(row, "seq"),
    id: textOf(row, "id"),
    aggregateType: textOf(row, "aggregate_type"),
    aggregateId: textOf(row, "aggregate_id"),
    type: textOf(row, "event_type"),
    eventVersion: numberOf(row, "event_version"),
    data: row["data"] ?? new Uint8Array(0),
    contentType: textOf(row, "content_type"),
    headers: headersOf(textOf(row, "headers")),
    idempotencyKey: textOrNull(row, "idempotency_key"),
    createdAt: dateOf(row, "created_at"),
  };
}

/** Plain SQL may have put any JSON there: what is not an object of strings is carried as text, never dropped. */
function headersOf(json: string): Readonly<Record<string, string>> {
  if (json === "{}") return {};
  const parsed: unknown = JSON.parse(json);
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return {};
  return Object.fromEntries(Object.entries(parsed).map(([name, held]) => [name, typeof held === "string" ? held : JSON.stringify(held)]));
}

export const textOrNull = (row: MysqlRow, name: string): string | null => row[name]?.toString("utf8") ?? null;
export const numberOf = (row: MysqlRow, name: string): number => Number(row[name]?.toString("latin1"));
export const isSet = (row: MysqlRow | undefined, name: string): boolean => row?.[name]?.toString("latin1") === "1";
export const bigOrNull = (row: MysqlRow, name: string): bigint | null => {
  const text = row[name]?.toString("latin1");
  return text === undefined ? null : BigInt(text);
};

export function textOf(row: MysqlRow, name: string): string {
  const text = textOrNull(row, name);
  if (text === null) throw new Error(`the server sent no ${name}`);
  return text;
}

export function bigOf(row: MysqlRow, name: string): bigint {
  return BigInt(textOf(row, name));
}

/** All our columns are in UTC, and the server writes them as 2026-01-31 23:59:59.123456 */
export function dateOrNull(row: MysqlRow, name: string): Date | null {
  const text = row[name]?.toString("latin1");
  return text === undefined ? null : new Date(`${text.replace(" ", "T")}Z`);
}

export function dateOf(row: MysqlRow, name: string): Date {
  return new Date(`${textOf(row, name).replace(" ", "T")}Z`);
}

/** What a window holds, by lane. Written and read here alone, as {"5":[17,18]}; JSON.parse would round the numbers. */
export type Parts = ReadonlyMap<number, readonly bigint[]>;

export function partsOf(json: string): Map<number, bigint[]> {
  const parts = new Map<number, bigint[]>();
  for (const [, lane, seqs] of json.matchAll(/"(\d+)":\[([\d,]+)\]/g)) parts.set(Number(lane), seqs!.split(",").map(BigInt));
  return parts;
}

export const partsJson = (parts: Parts): string =>
  `{${[...parts].flatMap(([lane, seqs]) => (seqs.length === 0 ? [] : [`"${lane}":[${seqs.join(",")}]`])).join(",")}}`;

export const sizeOf = (parts: Parts): number => [...parts.values()].reduce((sum, seqs) => sum + seqs.length, 0);

export const least = (...numbers: readonly bigint[]): bigint => numbers.reduce((a, b) => (a < b ? a : b));
