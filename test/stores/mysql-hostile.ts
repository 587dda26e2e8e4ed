import type mysql2 from "mysql2/promise";
import type { HostileRow } from "../../src/conformance/index.ts";

export const nested = (times: number): string => `{"a":${"[".repeat(times)}${"]".repeat(times)}}`;
const zero = "0000-00-00 00:00:00";

/** What the columns hold, and no relay can carry: as values of the columns that are not as they should be. */
const unreadable: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  "an escape that JSON does not have": { headers: String.raw`{"a":"\x"}` },
  "a quote that JSON does not escape": { headers: String.raw`{"a":"\'"}` },
  "a number that ends in a point": { headers: '{"a":1.}' },
  "a number that ends in an exponent": { headers: '{"a":1e+}' },
  "a number of nothing but its sign": { headers: '{"a":-}' },
  "headers that are no JSON": { headers: "{" },
  "headers with NUL behind them": { headers: "{}\0" },
  "headers that are a list": { headers: "[]" },
  "headers that are nested deeply": { headers: nested(20_000) },
  "headers that are too long": { headers: JSON.stringify({ a: "x".repeat(16_377) }) },
  "a zero date of creation": { created_at: zero },
  "a date of creation with a zero in it": { created_at: "2026-00-10 00:00:00" },
  "an empty id": { id: "" },
  "an id with NUL": { id: "a\0b" },
  "an empty aggregate type": { aggregate_type: "" },
  "an aggregate id of too many bytes": { aggregate_id: "🚚".repeat(255) },
  "an aggregate id with NUL": { aggregate_id: "a\0b" },
  "an empty type": { event_type: "" },
  "version 0": { event_version: 0 },
  "no payload": { payload: null },
  "two payloads": { payload_bytes: Buffer.of(0) },
  "an empty content type": { content_type: "" },
  "a content type of two lines": { content_type: "a\r\nb: c" },
  "a content type with a line's end": { content_type: "text/plain\n" },
  "an empty idempotency key": { idempotency_key: "" },
  "an idempotency key of too many bytes": { idempotency_key: "é".repeat(255) },
};

/** What can be carried, and was in the way of claims and settles. */
const readable: typeof unreadable = {
  "a zero date of availability": { available_at: zero },
  "a date of availability with a zero in it": { available_at: "2026-01-00 00:00:00" },
  "a zero date of its next attempt": { status: "FAILED", next_attempt_at: zero },
  "a zero date of publication": { published_at: zero },
  "as many retries as the column holds": { retry_count: 2_147_483_647 },
  "fewer retries than none": { retry_count: -2_147_483_648 },
};

export const hostileRows = { ...unreadable, ...readable };

/** As any writer may set its session: without CHECKs on MariaDB, with zero dates, and with empty text where a name belongs. */
export async function insertHostile(connection: mysql2.Connection, at: number, given: Readonly<Record<string, unknown>>): Promise<bigint> {
  await connection.query("SET SESSION sql_mode = 'ALLOW_INVALID_DATES' /*M! , check_constraint_checks = 0 */");
  const row = { aggregate_type: "Hostile", aggregate_id: `h-${at}`, event_type: "E", payload: "{}", ...given };
  const columns = Object.keys(row);
  const [{ insertId }] = await connection.query<mysql2.ResultSetHeader>(
    `INSERT INTO outbox (${columns.join(", ")}) VALUES (${columns.map(() => "?").join(", ")})`,
    Object.values(row),
  );
  return BigInt(insertId);
}

/** Past the guard, which the owner of the tables may take away. */
export async function writeHostile(pool: mysql2.Pool): Promise<readonly HostileRow[]> {
  const connection = await pool.getConnection();
  const rows: HostileRow[] = [];
  try {
    const [[made]] = (await connection.query("SHOW CREATE TRIGGER waybill_guard")) as unknown as [[Record<string, string>]];
    await connection.query("DROP TRIGGER waybill_guard");
    for (const [about, given] of Object.entries(hostileRows))
      rows.push({ about, seq: await insertHostile(connection, rows.length, given), readable: about in readable });
    await connection.query(made["SQL Original Statement"]!);
  } finally {
    connection.destroy();
  }
  return rows;
}
