import { randomBytes } from "node:crypto";
import type pg from "pg";
import type { HostileRow } from "../../src/conformance/index.ts";

const nested = (levels: number): string => `{"a":${"[".repeat(levels)}${"]".repeat(levels)}}`;
/** What an index cannot make shorter. */
const long = (bytes: number): string => randomBytes(bytes / 2).toString("hex");

/** By what is wrong with them: columns that a role may write that can only insert, and some that only the owner can. */
const kinds: readonly (readonly [about: string, columns: Readonly<Record<string, unknown>>, readable?: true])[] = [
  ["headers nested too deeply", { headers: nested(6_000) }],
  ["headers that are nested, and can be carried", { headers: nested(20) }, true],
  ["headers that are an array", { headers: "[1]" }],
  ["headers that are null", { headers: "null" }],
  ["headers of a megabyte", { headers: JSON.stringify({ a: "x".repeat(1_000_000) }) }],
  ["an aggregate id that no index takes", { aggregate_id: long(6_000) }],
  ["an aggregate type that no index takes", { aggregate_type: long(6_000) }],
  ["an aggregate id of 256 bytes", { aggregate_id: "x".repeat(256) }],
  ["an event type of a megabyte", { event_type: "x".repeat(1_000_000) }],
  ["an id of 300 bytes", { id: "x".repeat(300) }],
  ["an empty id", { id: "" }],
  ["an idempotency key of 300 bytes", { idempotency_key: "x".repeat(300) }],
  ["a content type of 300 bytes", { content_type: "x".repeat(300) }],
  ["a content type with a line break", { content_type: "a\nb" }],
  ["the highest count of attempts", { retry_count: 2_147_483_647 }, true],
  ["a count of attempts below none", { retry_count: -2_147_483_648 }, true],
  ["a version of two thousand million", { event_version: 2_147_483_647 }, true],
  ["dates before Christ", { available_at: "4713-01-01 BC", next_attempt_at: "4713-01-01 BC", published_at: "4713-01-01 BC" }, true],
  ["the first of all dates", { available_at: "-infinity", next_attempt_at: "-infinity", published_at: "-infinity" }, true],
  ["the last year there is", { published_at: "294276-12-31" }, true],
  ["the last of all dates", { published_at: "infinity" }, true],
];

export async function insertHostile(pool: pg.Pool, schema: string): Promise<readonly HostileRow[]> {
  const found: HostileRow[] = [];
  for (const [about, given, readable] of kinds) {
    const columns = { aggregate_type: "Hostile", aggregate_id: `h-${found.length}`, event_type: "E", payload: "1", ...given };
    const names = Object.keys(columns);
    const { rows } = await pool.query<{ seq: string }>(
      `INSERT INTO ${schema}.outbox (${names.join(", ")}) VALUES (${names.map((_, at) => `$${at + 1}`).join(", ")}) RETURNING seq`,
      Object.values(columns),
    );
    found.push({ about, seq: BigInt(rows[0]!.seq), ...(readable === undefined ? {} : { readable }) });
  }
  return found;
}
