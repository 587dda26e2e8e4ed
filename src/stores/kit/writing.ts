import { WaybillError } from "../../core/errors.ts";
import type { Added, Row } from "../../core/event.ts";

export const rowColumns =
  "id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, available_at";

/** In the order of the columns. */
export function rowValues<Moment>(row: Row, momentOf: (date: Date) => Moment): (string | number | Uint8Array | Moment | null)[] {
  const { payload, availableAt } = row;
  const [text, bytes] = typeof payload === "string" ? [payload, null] : [null, payload];
  const names = [row.id, row.aggregateType, row.aggregateId, row.type, row.eventVersion];
  const rest = [row.contentType, JSON.stringify(row.headers), row.idempotencyKey];
  return [...names, text, bytes, ...rest, availableAt === null ? null : momentOf(availableAt)];
}

/** Copies payload bytes before the store waits for anything: the caller may reuse its buffer after the call. */
export const copied = (rows: readonly Row[]): readonly Row[] =>
  rows.map((row) => (typeof row.payload === "string" ? row : { ...row, payload: new Uint8Array(row.payload) }));

/**
 * Of rows with the same key, only the first is added, and none if the key was used before. The others get the id of the event that used it.
 * `used` maps each used key to its event's id. After the call it has the keys of these rows too.
 */
export function addedOnce(rows: readonly Row[], used: Map<string, string>): readonly Added[] {
  return rows.map(({ id, idempotencyKey: key }) => {
    const first = key === null ? undefined : used.get(key);
    if (key !== null && first === undefined) used.set(key, id);
    return { id: first ?? id, duplicate: first !== undefined };
  });
}

export const idTaken = (id: string, cause?: unknown): WaybillError =>
  new WaybillError(
    "INVALID_DRAFT",
    `there is an event with id ${id} already: give each event an id of its own, or an idempotencyKey to add it once`,
    { cause },
  );
