import { maxHeadersText, readRow, type ReadRow } from "../kit/stored.ts";
import type { Weight } from "../../core/within-bytes.ts";
import type { Cells } from "../kit/status.ts";
import type { MysqlRow } from "./connection.ts";
import { literal } from "./values.ts";

/** Text comes as its bytes: a connection's own character set might not hold it. */
const asBytes = (...names: readonly string[]): string => names.map((name) => `CAST(o.${name} AS BINARY) AS ${name}`).join(", ");

const payload = "COALESCE(CAST(o.payload AS BINARY), o.payload_bytes)";
const payloadSize = "COALESCE(OCTET_LENGTH(o.payload), OCTET_LENGTH(o.payload_bytes))";

/**
 * The columns of an envelope, from the outbox table named `o`. The payload is included up to `inline` bytes. Headers are read just far
 * enough to see whether they are too long.
 */
export const envelopeColumns = (
  inline: number,
): string => `o.seq, o.id, ${asBytes("aggregate_type", "aggregate_id", "event_type", "content_type", "idempotency_key")},
  CAST(LEFT(o.headers, ${maxHeadersText + 1}) AS BINARY) AS headers, o.event_version, o.created_at,
  o.payload IS NOT NULL AS is_text, o.payload_bytes IS NOT NULL AS is_bytes, ${payloadSize} AS size,
  ${inline === Infinity ? payload : `IF(${payloadSize} <= ${inline}, ${payload}, NULL)`} AS data`;

/** The payload alone. */
export const payloadColumns = `o.seq, ${payload} AS data`;

/** Nothing that is stored apart from its row. */
export const lightColumns = `o.seq, ${asBytes("aggregate_type", "aggregate_id")}`;

export const payloadSizeOf = (row: MysqlRow): number => Number(row["size"]?.toString("latin1") ?? 0);
export const weightOf = (row: MysqlRow): Weight => ({ payload: payloadSizeOf(row), headers: row["headers"]?.byteLength ?? 0 });

/** Whether its payload has still to be read. */
export const lacksPayload = (row: MysqlRow): boolean => row["data"] === null && row["size"] !== null;

export const tooLargeToSend = (size: number): string =>
  `payload takes ${size} bytes, more than the server can send with its max_allowed_packet`;

/** Never throws: whatever plain SQL has written is the row's own failure. An `unread` payload is not checked. */
export function readEvent(row: MysqlRow, unread = false): ReadRow {
  const faults: string[] = [];
  if (isSet(row, "is_text") === isSet(row, "is_bytes")) faults.push("one of payload and payload_bytes must be set, and not both");
  else if (!unread && row["data"]?.byteLength !== numberOf(row, "size")) faults.push(tooLargeToSend(numberOf(row, "size")));
  return readRow(
    {
      seq: bigOf(row, "seq"),
      id: row["id"] ?? null,
      aggregateType: row["aggregate_type"] ?? null,
      aggregateId: row["aggregate_id"] ?? null,
      type: row["event_type"] ?? null,
      eventVersion: numberOf(row, "event_version"),
      data: row["data"] ?? new Uint8Array(0),
      contentType: row["content_type"] ?? null,
      headers: row["headers"] ?? null,
      idempotencyKey: row["idempotency_key"] ?? undefined,
      createdAt: dateOf(row, "created_at"),
    },
    faults,
  );
}

export const textOrNull = (row: MysqlRow, name: string): string | null => row[name]?.toString("utf8") ?? null;
export const isSet = (row: MysqlRow | undefined, name: string): boolean => row?.[name]?.toString("latin1") === "1";
export const bigOrNull = (row: MysqlRow, name: string): bigint | null => {
  const text = row[name]?.toString("latin1");
  return text === undefined ? null : BigInt(text);
};

export function textOf(row: MysqlRow, name: string): string {
  const text = textOrNull(row, name);
  if (text === null) throw new TypeError(`the server sent no ${name}`);
  return text;
}

/** NaN for NULL. */
export function numberOf(row: MysqlRow, name: string): number {
  const number = Number(row[name]?.toString("latin1"));
  if (Number.isNaN(number) && row[name] !== null) throw new TypeError(`the server sent no number in ${name}`);
  return number;
}

export function bigOf(row: MysqlRow, name: string): bigint {
  return BigInt(textOf(row, name));
}

/** Our columns are in UTC, as 2026-01-31 23:59:59.123456. A zero date, which some applications write for none, becomes null. */
export function dateOrNull(row: MysqlRow, name: string): Date | null {
  const date = row[name] === null ? null : dateOf(row, name);
  return date === null || Number.isNaN(date.getTime()) ? null : date;
}

export function dateOf(row: MysqlRow, name: string): Date {
  return new Date(`${textOf(row, name).replace(" ", "T")}Z`);
}

/** Code and text of an event's failure, from the outbox table named `o`. */
export const toldError = `CONCAT_WS(${literal(": ")}, NULLIF(o.error_code, ${literal("")}), COALESCE(o.last_error, ${literal("")}))`;
/** Whether a text begins with a value, which has to be given twice. Compares bytes, whatever collations the two have. */
export const beginsWith = (text: string): string => `LEFT(CAST(${text} AS BINARY), OCTET_LENGTH(?)) = CAST(? AS BINARY)`;

export const cells: Cells<MysqlRow> = { text: textOf, textOrNull, number: numberOf, isSet, dateOrNull };

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
