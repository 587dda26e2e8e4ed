import { isUtf8 } from "node:buffer";
import type { Envelope } from "../../core/event.ts";
import { maxHeadersBytes } from "../../core/headers.ts";
import { fit, maxMarkBytes } from "../../core/letter.ts";

/** Text as the client library gave it: bytes where plain SQL may have written any, null where there is no readable text. */
type StoredText = string | Uint8Array | null;

/** What a store read of one row. */
export interface StoredRow {
  readonly seq: bigint;
  readonly id: StoredText;
  readonly aggregateType: StoredText;
  readonly aggregateId: StoredText;
  readonly type: StoredText;
  readonly eventVersion: number;
  readonly data: Uint8Array;
  readonly contentType: StoredText;
  readonly headers: StoredText;
  /** Undefined: the row has none. */
  readonly idempotencyKey: StoredText | undefined;
  /** An invalid Date where the column holds no date. */
  readonly createdAt: Date;
}

export interface ReadRow {
  readonly envelope: Envelope;
  /** Why the row cannot be carried, in words. The envelope then holds what could be read. Null: the row can be carried. */
  readonly unreadable: string | null;
}

/** As many as a draft may have. */
export const maxHeadersText = maxHeadersBytes;

/** Never throws: a bad row that plain SQL wrote fails alone, without its whole window. */
export function readRow(row: StoredRow, faults: string[] = []): ReadRow {
  const headers = headersOf(row.headers, faults);
  const dated = !Number.isNaN(row.createdAt.getTime());
  if (!dated) faults.push("created_at is not a date");
  if (!(row.eventVersion >= 1 && row.eventVersion <= 2_147_483_647 && Number.isInteger(row.eventVersion)))
    faults.push("event_version is not a whole number from 1 to 2147483647");
  const contentType = nameOf("content_type", row.contentType, faults);
  if (contentType !== "" && !/^[\x20-\x7e]*$/.test(contentType)) faults.push("content_type is not printable ASCII");
  const envelope: Envelope = {
    seq: row.seq,
    id: nameOf("id", row.id, faults),
    aggregateType: nameOf("aggregate_type", row.aggregateType, faults),
    aggregateId: nameOf("aggregate_id", row.aggregateId, faults),
    type: nameOf("event_type", row.type, faults),
    eventVersion: row.eventVersion,
    data: row.data,
    contentType,
    headers,
    idempotencyKey: row.idempotencyKey === undefined ? null : nameOf("idempotency_key", row.idempotencyKey, faults),
    createdAt: dated ? row.createdAt : new Date(0),
  };
  return { envelope, unreadable: faults.length === 0 ? null : faults.join("; ") };
}

/** The readable text, in a form that every store, log and message can hold. */
function nameOf(column: string, stored: StoredText, faults: string[]): string {
  if (stored === null) {
    faults.push(`${column} is not text`);
    return "";
  }
  const text = textOf(stored);
  // UTF-8 takes at most three bytes per UTF-16 unit, so most names need no exact count.
  const bytes =
    typeof stored !== "string" ? stored.byteLength : stored.length * 3 <= maxMarkBytes ? stored.length : Buffer.byteLength(stored);
  if (bytes > 0 && bytes <= maxMarkBytes && !text.includes("\0") && isWhole(stored, text)) return text;
  if (bytes === 0) faults.push(`${column} is empty`);
  else if (bytes > maxMarkBytes) faults.push(`${column} takes more than ${maxMarkBytes} bytes`);
  else faults.push(`${column} ${text.includes("\0") ? "holds NUL" : "is not valid UTF-8"}`);
  return fit(text);
}

function headersOf(stored: StoredText, faults: string[]): Readonly<Record<string, string>> {
  if (stored === "{}") return {};
  const read = stored === null ? "headers are not text" : parsed(stored);
  if (typeof read !== "string") return read;
  faults.push(read);
  return {};
}

/** The headers, or what is wrong with them. A value that is no string (plain SQL may write any JSON) is carried as JSON, never dropped. */
function parsed(stored: string | Uint8Array): Readonly<Record<string, string>> | string {
  if ((typeof stored === "string" ? stored.length : stored.byteLength) > maxHeadersText)
    return `headers take more than ${maxHeadersText} bytes`;
  const text = textOf(stored);
  if (text === "{}") return {};
  if (!isWhole(stored, text)) return "headers are not valid UTF-8";
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return "headers are not JSON";
  }
  if (typeof json !== "object" || json === null || Array.isArray(json)) return "headers are not a JSON object";
  try {
    return Object.fromEntries(Object.entries(json).map(([name, held]) => [name, typeof held === "string" ? held : JSON.stringify(held)]));
  } catch {
    return "headers are nested too deeply"; // for the stack of JSON.stringify
  }
}

const textOf = (stored: string | Uint8Array): string =>
  typeof stored === "string" ? stored : Buffer.from(stored.buffer, stored.byteOffset, stored.byteLength).toString("utf8");

/** A lone surrogate, and bytes that are not UTF-8, would be replaced on the way. */
const isWhole = (stored: string | Uint8Array, text: string): boolean =>
  typeof stored === "string" ? stored.isWellFormed() : !text.includes("\ufffd") || isUtf8(stored);
