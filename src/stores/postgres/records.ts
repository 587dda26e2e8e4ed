import type { State } from "../../core/event.ts";
import type { Stored } from "../kit/records.ts";
import type { PgRow } from "./connection.ts";
import { dateOrNull, headColumns, ms, payloadSize, readEnvelope } from "./rows.ts";

/** As much of an error as a person reads. */
const errorCharacters = 64 * 1024;

/**
 * All columns of an event, from the view of all events named `o`. Payloads come only up to this size: the client ends the process when a
 * value is longer than a string may be.
 */
export const recordColumns = (inline: number): string => `${headColumns}, ${payloadSize} AS size, o.payload IS NOT NULL AS is_text,
  CASE WHEN ${payloadSize} <= ${inline} THEN o.payload END AS payload,
  CASE WHEN ${payloadSize} <= ${inline} THEN encode(o.payload_bytes, 'hex') END AS payload_hex, o.lane, ${ms("o.available_at")} AS available_ms, o.state, o.retry_count, ${ms("o.next_attempt_at")} AS next_ms,
  left(o.last_error, ${errorCharacters}) AS last_error, left(o.error_code, 256) AS error_code, left(o.error_detail, ${errorCharacters}) AS error_detail, ${ms("o.published_at")} AS published_ms, o.owner, o.hold`;

export function storedOf(row: PgRow): Stored {
  const { data, ...envelope } = readEnvelope(row).envelope;
  const [text, hex, size] = [row["payload"] ?? null, row["payload_hex"] ?? null, Number(row["size"])];
  const unread = text === null && hex === null && size > 0;
  const record = {
    ...envelope,
    payload: unread ? null : (text ?? data),
    payloadBytes: size,
    lane: Number(row["lane"]),
    availableAt: dateOrNull(row["available_ms"]),
    state: row["state"] as State,
    retryCount: Number(row["retry_count"]),
    nextAttemptAt: dateOrNull(row["next_ms"]),
    lastError: row["last_error"] ?? null,
    errorCode: textOrNull(row["error_code"]),
    errorDetail: textOrNull(row["error_detail"]),
    publishedAt: dateOrNull(row["published_ms"]),
    owner: row["owner"] ?? null,
    hold: row["hold"] ?? null,
  };
  return { record, isText: row["is_text"] === "t" };
}

const textOrNull = (text: string | null | undefined): string | null => (text === undefined || text === "" ? null : text);
