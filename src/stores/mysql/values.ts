import { show, WaybillError } from "../../core/errors.ts";

/** The values that our statements take. Text is sent in the columns' character set, and bytes as they are. */
export type SqlValue = string | number | bigint | Uint8Array | Date | null;

/**
 * Replaces the question marks by the values, written so that no setting of the session or the client changes how they are read. A backslash
 * has a meaning in one sql_mode and none in another, a connection's character set may not be able to represent our text, and mysql2 turns
 * an object into SQL. Text and bytes are written as hexadecimal digits, numbers as digits.
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

/** A list of numbers for IN (…). An empty list becomes NULL, which nothing equals. */
export function list(numbers: Iterable<number | bigint>): string {
  const all = [...numbers].map((each) => literal(each));
  return all.length === 0 ? "NULL" : all.join(",");
}
