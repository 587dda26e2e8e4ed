import type { EventRecord } from "../../contracts/operator.ts";
import type { State } from "../../core/event.ts";
import type { PgRow } from "./connection.ts";
import { dateOrNull, envelopeColumns, ms, readEnvelope } from "./rows.ts";

/** Everything of an event, from the view of all events named `o`. */
export const recordColumns = `${envelopeColumns}, o.lane, ${ms("o.available_at")} AS available_ms, o.state, o.retry_count, ${ms("o.next_attempt_at")} AS next_ms,
  o.last_error, ${ms("o.published_at")} AS published_ms, o.owner, o.hold`;

export function recordOf(row: PgRow): EventRecord {
  const { data, ...envelope } = readEnvelope(row).envelope;
  return {
    ...envelope,
    payload: row["payload"] ?? data,
    lane: Number(row["lane"]),
    availableAt: dateOrNull(row["available_ms"]),
    state: row["state"] as State,
    retryCount: Number(row["retry_count"]),
    nextAttemptAt: dateOrNull(row["next_ms"]),
    lastError: row["last_error"] ?? null,
    publishedAt: dateOrNull(row["published_ms"]),
    owner: row["owner"] ?? null,
    hold: row["hold"] ?? null,
  };
}
