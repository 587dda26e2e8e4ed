import type { State } from "../../core/event.ts";
import type { SqliteRow } from "../../drivers/sqlite/connection.ts";
import type { Stored } from "../kit/records.ts";
import { countOf, dataOf, dateOrNull, envelopeColumns, foreign, readEnvelope, sizeOf, textOf } from "./rows.ts";

/** As much of an error as a person reads. */
const errorBytes = 64 * 1024;

/** All columns of an event, from the events named `o`. The payload only if it has at most `inline` bytes. */
export const recordColumns = (
  inline: number,
): string => `${envelopeColumns}, ${sizeOf} AS size, CASE WHEN ${sizeOf} <= ${inline} THEN ${dataOf} END AS data, o.payload IS NOT NULL AS is_text,
  o.lane, o.state, ${countOf("o.retry_count")} AS retry_count,
  ${foreign("o.available_at")} AS available_at, ${foreign("o.next_attempt_at")} AS next_attempt_at, ${foreign("o.published_at")} AS published_at,
  ${foreign("o.last_error", errorBytes)} AS last_error, ${foreign("nullif(o.error_code, '')")} AS error_code,
  ${foreign("nullif(o.error_detail, '')", errorBytes)} AS error_detail, o.owner, o.hold`;

export function storedOf(row: SqliteRow): Stored {
  const { data, ...envelope } = readEnvelope(row, row["data"]).envelope;
  const text = (name: string): string | null => (row[name] === null ? null : textOf(row[name]));
  const [isText, size] = [Number(row["is_text"]) === 1, Number(row["size"])];
  const unread = row["data"] === null && size > 0;
  const record = {
    ...envelope,
    payload: unread ? null : isText ? textOf(data) : data,
    payloadBytes: size,
    lane: row["lane"] === null ? null : Number(row["lane"]),
    availableAt: dateOrNull(row["available_at"]),
    state: String(row["state"]) as State,
    retryCount: Number(row["retry_count"]),
    nextAttemptAt: dateOrNull(row["next_attempt_at"]),
    lastError: text("last_error"),
    errorCode: text("error_code"),
    errorDetail: text("error_detail"),
    publishedAt: dateOrNull(row["published_at"]),
    owner: text("owner"),
    hold: text("hold"),
  };
  return { record, isText };
}
