import { asError } from "../../core/errors.ts";
import { fromAttributes } from "../../core/cloudevents.ts";
import type { Envelope } from "../../core/event.ts";
import { unreadable, type Content, type Received } from "../kit/receiving.ts";
import { bytesOf, type SqliteRow, type Statements } from "../../drivers/sqlite/connection.ts";
import { isTooLarge } from "../../drivers/sqlite/driver.ts";

interface Stored extends Omit<Received, "ack"> {
  readonly offset: number;
}

interface Wanted {
  readonly count: number;
  /** No message follows one that reached this number. */
  readonly bytes: number;
  /** Reading has failed several times: read one message at a time, and of one that is too large to read, only the first bytes. */
  readonly careful: boolean;
}

/** The next messages after each topic's cursor, in the order they were stored. The limits are for all topics together. */
export function readAfter(
  statements: Statements,
  places: ReadonlyMap<string, { readonly cursor: number }>,
  { count, bytes, careful }: Wanted,
): readonly Stored[] {
  const topics = [...places.keys()];
  const stored = (row: SqliteRow): Stored => {
    const offset = Number(row["offset"]);
    return { topic: topics[Number(row["nth"])]!, offset, bytes: Number(row["bytes"]), ...contentOf(offset, row) };
  };
  const read = (columns: string, limit: number): readonly SqliteRow[] => {
    // One statement is one snapshot: read topic by topic, a later message could overtake an earlier one of another topic.
    const sql = `${topics.map((_, i) => `SELECT * FROM (${next(i, columns)})`).join(" UNION ALL ")} ORDER BY "offset" LIMIT ?`;
    return statements.all(sql, [...topics.flatMap((topic) => [topic, places.get(topic)!.cursor, limit]), limit]);
  };
  if (careful) {
    const [next] = read(start, 1);
    if (next === undefined) return [];
    try {
      return read(whole, 1).map(stored);
    } catch (error) {
      if (!isTooLarge(error)) throw error; // a locked or unreadable file says nothing about the message
      const { topic, offset } = stored(next);
      const raw = bytesOf(next["data"]);
      const why = `it could not be read in several receivings, and these are its first bytes: ${asError(error).message}`;
      return [{ topic, offset, bytes: raw.byteLength, ...unreadable(offset, why, raw) }];
    }
  }
  // Sizes first: a message is not read before there is room for it.
  const within = bytes === Infinity ? count : reaching(read(size, count), bytes);
  return within === 0 ? [] : read(whole, within).map(stored);
}

/** How many messages there are up to the first that reaches the bound, that one included. */
function reaching(sizes: readonly SqliteRow[], bytes: number): number {
  let left = bytes;
  const at = sizes.findIndex((row) => (left -= Number(row["bytes"])) <= 0);
  return at === -1 ? sizes.length : at + 1;
}

const next = (nth: number, columns: string): string =>
  `SELECT ${nth} AS nth, "offset", ${columns} FROM waybill_broker_messages WHERE topic = ? AND "offset" > ? ORDER BY "offset" LIMIT ?`;

// For any type of value; SQLite knows the length of a BLOB without reading it.
const lengthOf = (column: string): string =>
  `CASE typeof(${column}) WHEN 'blob' THEN length(${column}) ELSE length(CAST(${column} AS BLOB)) END`;
const size = `${lengthOf("attributes")} + ${lengthOf("headers")} + ${lengthOf("data")} AS bytes`;

// Everything as bytes: one client (libsql) ends the whole process at text that is not UTF-8.
const start = `0 AS bytes, x'' AS attributes, x'' AS headers, substr(CAST(data AS BLOB), 1, 65536) AS data`;
const whole = `${size}, CAST(attributes AS BLOB) AS attributes, CAST(headers AS BLOB) AS headers, CAST(data AS BLOB) AS data`;

function contentOf(offset: number, row: SqliteRow): Content {
  const envelope = decode(row);
  if (envelope !== null) return { envelope };
  const [attributes, headers, data] = [row["attributes"], row["headers"], row["data"]].map((value) => Buffer.from(bytesOf(value)));
  const raw = Buffer.concat([attributes!, Buffer.from("\n"), headers!, Buffer.from("\n"), data!]);
  return unreadable(offset, "it is not an event: attributes are missing, or they cannot be read", raw);
}

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
