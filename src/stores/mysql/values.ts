import { show, WaybillError } from "../../core/errors.ts";

/** What a statement of ours may be given. Text is text of the columns' character set, and bytes are bytes. */
export type SqlValue = string | number | bigint | Uint8Array | Date | null;

/**
 * Puts the values in place of the question marks. They are written so that nothing about the session or the client has a
 * say in how they are read: a backslash means something in one sql_mode and nothing in another, a connection's character
 * set need not hold our text, and mysql2 makes SQL of an object. Text and bytes go as hexadecimal digits, numbers as digits.
 */
export function fill(sql: string, values: readonly SqlValue[]): string {
  const parts = sql.split("?");
  if (parts.length !== values.length + 1) throw new Error(`a statement of Waybill has ${parts.length - 1} values, not ${values.length}`);
  let filled = parts[0]!;
  for (const [at, value] of values.entries()) filled += literal(value) + parts[at + 1]!;
  return filled;
}

export function literal(value: SqlValue): string {
  if (value === null) return "NULL";
  if (typeof value === "string") return `_utf8mb4 X'${Buffer.from(value, "utf8").toString("hex")}'`;
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number" && Number.isFinite(value)) return Number.isInteger(value) ? value.toFixed(0) : value.toString();
  if (value instanceof Uint8Array) return `X'${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("hex")}'`;
  if (value instanceof Date && !Number.isNaN(value.getTime())) return moment(value);
  throw new WaybillError("INVALID_DRAFT", `a value for MySQL is text, a number, bytes, a moment or null, not ${show(value)}`);
}

/** UTC, as a number: 20260131235959.123 */
const moment = (date: Date): string => date.toISOString().replaceAll(/[-:TZ]/g, "");

/** A list of numbers, as it stands between brackets; one that nothing equals when it is empty. */
export function list(numbers: Iterable<number | bigint>): string {
  const all = [...numbers].map((each) => literal(each));
  return all.length === 0 ? "NULL" : all.join(",");
}
