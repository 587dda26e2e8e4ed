import { fromAttributes } from "../../core/cloudevents.ts";
import type { Envelope } from "../../core/event.ts";
import { bytesOf, type SqliteRow, type Statements } from "../../sqlite/connection.ts";

export interface Stored {
  readonly topic: string;
  readonly offset: number;
  /** Null where the message is not an event. */
  readonly envelope: Envelope | null;
}

/** The next messages after each topic's cursor, in the order they were stored, over all topics at most `limit`. */
export function readAfter(
  statements: Statements,
  places: ReadonlyMap<string, { readonly cursor: number }>,
  limit: number,
): readonly Stored[] {
  const topics = [...places.keys()];
  // One statement is one snapshot: read topic by topic, a later message could overtake an earlier one of another topic.
  const sql = `${topics.map((_, i) => `SELECT * FROM (${next(i)})`).join(" UNION ALL ")} ORDER BY "offset" LIMIT ?`;
  const rows = statements.all(sql, ...topics.flatMap((topic) => [topic, places.get(topic)!.cursor, limit]), limit);
  return rows.map((row) => ({ topic: topics[Number(row["nth"])]!, offset: Number(row["offset"]), envelope: decode(row) }));
}

// Everything as bytes: text that is not UTF-8 makes one client (libsql) end the whole process.
const next = (nth: number): string =>
  `SELECT ${nth} AS nth, "offset", CAST(attributes AS BLOB) AS attributes, CAST(headers AS BLOB) AS headers, CAST(data AS BLOB) AS data
   FROM waybill_broker_messages WHERE topic = ? AND "offset" > ? ORDER BY "offset" LIMIT ?`;

function decode(row: SqliteRow): Envelope | null {
  const attributes = strings(row["attributes"]);
  const headers = strings(row["headers"]);
  return attributes === null || headers === null ? null : fromAttributes(attributes, headers, bytesOf(row["data"]));
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function strings(json: unknown): Readonly<Record<string, string>> | null {
  try {
    const value: unknown = JSON.parse(utf8.decode(bytesOf(json)));
    if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
    return Object.values(value).every((text) => typeof text === "string") ? (value as Record<string, string>) : null;
  } catch {
    return null;
  }
}
