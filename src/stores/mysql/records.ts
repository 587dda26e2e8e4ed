import type { EventRecord } from "../../contracts/operator.ts";
import type { State } from "../../core/event.ts";
import type { MysqlRow } from "./connection.ts";
import { dateOrNull, envelopeColumns, isSet, numberOf, readEvent, textOf, textOrNull } from "./rows.ts";

/** Everything of an event, from the view of all events named `o`. */
export const recordColumns = `${envelopeColumns(Infinity)}, o.lane, o.available_at, o.state, o.retry_count, o.next_attempt_at,
  CAST(o.last_error AS BINARY) AS last_error, o.published_at, CAST(o.owner AS BINARY) AS owner, CAST(o.hold AS BINARY) AS hold`;

export function recordOf(row: MysqlRow): EventRecord {
  const {
    envelope: { data, ...envelope },
  } = readEvent(row);
  return {
    ...envelope,
    payload: isSet(row, "is_text") ? Buffer.from(data).toString("utf8") : data,
    lane: numberOf(row, "lane"),
    availableAt: dateOrNull(row, "available_at"),
    state: textOf(row, "state") as State,
    retryCount: numberOf(row, "retry_count"),
    nextAttemptAt: dateOrNull(row, "next_attempt_at"),
    lastError: textOrNull(row, "last_error"),
    publishedAt: dateOrNull(row, "published_at"),
    owner: textOrNull(row, "owner"),
    hold: textOrNull(row, "hold"),
  };
}
