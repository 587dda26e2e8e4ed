import { maxMarkBytes } from "../../core/letter.ts";
import { maxHeadersText, readRow, type ReadRow } from "../kit/stored.ts";
import type { Cells } from "../kit/status.ts";
import type { PgRow } from "./connection.ts";

/** The latest moment that a Date can hold: `available_at` may be 'infinity', which is later. */
export const lastMs = 8_640_000_000_000_000;

/** Milliseconds since 1970, whatever time zone and date style the session has. */
export const ms = (moment: string): string =>
  `(CASE WHEN isfinite(${moment}) THEN least(floor(extract(epoch FROM ${moment}) * 1000), ${lastMs})
         WHEN ${moment} = 'infinity' THEN ${lastMs} WHEN ${moment} = '-infinity' THEN -${lastMs} END)::bigint`;

/** Names that are too long to be carried come truncated, and headers that are too long come as NULL: both still show what is wrong. */
const name = (column: string): string => `left(o.${column}, ${maxMarkBytes + 1}) AS ${column}`;

/** The columns of an envelope except its payload, from the outbox table named `o`. */
export const headColumns = `o.seq, ${["id", "aggregate_type", "aggregate_id", "event_type", "content_type", "idempotency_key"].map(name).join(", ")},
  o.event_version, CASE WHEN octet_length(o.headers::text) <= ${maxHeadersText} THEN o.headers::text END AS headers, ${ms("o.created_at")} AS created_ms`;

/** Known without reading a value that is stored out of line. */
export const payloadSize = "coalesce(octet_length(o.payload), octet_length(o.payload_bytes), 0)";

/** Never throws: a row that cannot be carried says why. */
export function readEnvelope(row: PgRow): ReadRow {
  const headers = row["headers"] ?? null;
  return readRow(
    {
      seq: BigInt(row["seq"]!),
      id: row["id"] ?? null,
      aggregateType: row["aggregate_type"] ?? null,
      aggregateId: row["aggregate_id"] ?? null,
      type: row["event_type"] ?? null,
      eventVersion: Number(row["event_version"]),
      data: dataOf(row),
      contentType: row["content_type"] ?? null,
      headers: headers ?? "{}",
      idempotencyKey: row["idempotency_key"] ?? undefined,
      createdAt: dateOf(row["created_ms"]),
    },
    headers === null ? [`headers take more than ${maxHeadersText} bytes`] : [],
  );
}

function dataOf(row: PgRow): Uint8Array {
  const text = row["payload"] ?? null;
  return text === null ? Buffer.from(row["payload_hex"] ?? "", "hex") : Buffer.from(text, "utf8");
}

export const dateOf = (value: string | null | undefined): Date => new Date(Number(value));
export const dateOrNull = (value: string | null | undefined): Date | null => (value === null || value === undefined ? null : dateOf(value));

/** An array of numbers, as PostgreSQL writes and reads it. */
export const list = (numbers: Iterable<number | bigint>): string => `{${[...numbers].join(",")}}`;
export function bigints(array: string | null | undefined): bigint[] {
  const inside = (array ?? "{}").slice(1, -1);
  return inside === "" ? [] : inside.split(",").map(BigInt);
}

/** Added within a span of milliseconds, as `spanOf` returns it. This tells the database which partitions to look into. */
export const addedWithin = (from: string | number, to: string | number): string =>
  `created_at >= to_timestamp(${from}::bigint / 1000.0) AND created_at < to_timestamp(${to}::bigint / 1000.0)`;
export const spanOf = (ms: readonly number[]): [from: number, to: number] =>
  ms.reduce<[number, number]>(([from, to], at) => [Math.min(from, at), Math.max(to, at + 1)], [ms[0] ?? 0, ms[0] ?? 0]);

/** PostgreSQL's text can hold neither NUL nor half a surrogate pair. */
export const storable = (text: string): string => text.toWellFormed().replaceAll("\0", "\ufffd");

/** Whether an aggregate's names fit into an index, and so into holds and suspects. Names of a row that can be carried do fit. */
export const indexable = "greatest(octet_length(o.aggregate_type), octet_length(o.aggregate_id)) <= 255";

/** Code and text of an event's failure, from the outbox table named `o`. */
export const toldError = "left(concat_ws(': ', nullif(o.error_code, ''), coalesce(o.last_error, '')), 4096)";

export const cells: Cells<PgRow> = {
  text: (row, name) => row[name]!,
  textOrNull: (row, name) => row[name] ?? null,
  number: (row, name) => Number(row[name]),
  isSet: (row, name) => row[name] === "t",
  dateOrNull: (row, name) => dateOrNull(row[name]),
};
