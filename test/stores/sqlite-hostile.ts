import type { HostileRow } from "../../src/conformance/index.ts";
import { LANES, laneOf } from "../../src/core/lane.ts";
import type { SqliteDatabase } from "../../src/drivers/sqlite/driver.ts";

/** Columns as SQL expressions, over those of an ordinary event. */
interface Kind {
  readonly about: string;
  readonly columns: Readonly<Record<string, string>>;
  readonly readable?: boolean;
}

const text = (hex: string): string => `CAST(x'${hex}' AS TEXT)`;
const nested = (depth: number): string => `'{"a":${"[".repeat(depth)}${"]".repeat(depth)}}'`;
const long = (bytes: number): string => `'${"x".repeat(bytes)}'`;
const date = "2020-99-99T99:99:99.999Z";

/** SQLite's columns have no types: each may hold text that is no UTF-8, bytes or a number. */
export const hostileKinds: readonly Kind[] = [
  { about: "headers: JSON with a NUL behind it", columns: { headers: "'{}' || char(0)" } },
  { about: "headers: a list", columns: { headers: "'[]'" } },
  { about: "headers: a number", columns: { headers: "'5'" } },
  { about: "headers: null", columns: { headers: "'null'" } },
  { about: "headers: no JSON", columns: { headers: "'x'" } },
  { about: "headers: nested as deep as SQLite allows", columns: { headers: nested(900) }, readable: true },
  { about: "headers: nested 50,000 deep", columns: { headers: nested(50_000) } },
  { about: "headers: bytes", columns: { headers: "CAST('{}' AS BLOB)" } },
  { about: "headers: not UTF-8", columns: { headers: text("7b2261223a22ff227d") } },
  { about: "headers: a megabyte", columns: { headers: `'{"a":"${"x".repeat(1_000_000)}"}'` } },
  { about: "id: empty", columns: { id: "''" } },
  { about: "id: longer than the inbox's column", columns: { id: long(300) } },
  { about: "id: with NUL", columns: { id: "'a' || char(0) || 'b'" } },
  { about: "id: bytes", columns: { id: "x'00ff'" } },
  { about: "id: not UTF-8", columns: { id: text("fffe") } },
  { about: "aggregate id: with NUL", columns: { aggregate_id: "'a' || char(0) || 'b'" } },
  { about: "aggregate id: 5,000 bytes", columns: { aggregate_id: long(5_000) } },
  { about: "aggregate id: not UTF-8", columns: { aggregate_id: text("c328") } },
  { about: "aggregate id: bytes", columns: { aggregate_id: "x'c328'" } },
  { about: "aggregate type: with NUL", columns: { aggregate_type: "char(0)" } },
  { about: "aggregate type: bytes", columns: { aggregate_type: "x'41'" } },
  { about: "event type: 300 bytes", columns: { event_type: long(300) } },
  { about: "event type: not UTF-8", columns: { event_type: text("ff") } },
  { about: "event version: a fraction", columns: { event_version: "1.5" } },
  { about: "event version: text", columns: { event_version: "'one'" } },
  { about: "event version: beyond 2^53", columns: { event_version: "9223372036854775807" } },
  { about: "retry count: text", columns: { retry_count: "'many'" } },
  { about: "retry count: the last integer", columns: { retry_count: "9223372036854775807" } },
  { about: "retry count: the last that is one", columns: { retry_count: "2147483647" }, readable: true },
  { about: "retry count: negative", columns: { retry_count: "-1" } },
  { about: "retry count: bytes", columns: { retry_count: "x'ff'" } },
  { about: "created: words", columns: { created_at: "'foo 12'" } },
  { about: "created: a number", columns: { created_at: "1700000000" } },
  { about: "created: bytes that are no text", columns: { created_at: text("ff") } },
  { about: "created: no day of any month", columns: { created_at: `'${date}'` } },
  { about: "created: bytes", columns: { created_at: "x'32'" } },
  { about: "available: no day of any month, long ago", columns: { available_at: `'${date}'` }, readable: true },
  { about: "content type: empty", columns: { content_type: "''" } },
  { about: "content type: more than a line", columns: { content_type: "'a' || char(13) || char(10) || 'b: c'" } },
  { about: "content type: bytes", columns: { content_type: "x'61'" } },
  { about: "key: empty", columns: { idempotency_key: "''" } },
  { about: "key: bytes", columns: { idempotency_key: "x'ff'" } },
  { about: "key: 300 bytes", columns: { idempotency_key: long(300) } },
  { about: "no payload", columns: { payload: "NULL" } },
  { about: "payload: bytes in the column of text", columns: { payload: "x'00ff'" }, readable: true },
  { about: "payload: a number in the column of bytes", columns: { payload: "NULL", payload_bytes: "5" }, readable: true },
  { about: "next attempt: words", columns: { next_attempt_at: "'soon'" }, readable: true },
  { about: "last error: not UTF-8", columns: { last_error: text("ff00fe") }, readable: true },
  { about: "last error: bytes", columns: { last_error: "x'ff'" }, readable: true },
  { about: "published: words", columns: { published_at: "'never'" }, readable: true },
  { about: "seq: below 1", columns: { seq: "-5" }, readable: true },
  { about: "lane: behind the last", columns: { lane: "64" }, readable: true },
  { about: "lane: before the first", columns: { lane: "-1" }, readable: true },
  { about: "lane: a fraction", columns: { lane: "1.5" }, readable: true },
  { about: "lane: words", columns: { lane: "'x'" }, readable: true },
  { about: "lane: bytes", columns: { lane: "x'07'" }, readable: true },
  {
    about: "lane: behind the last, of an event that has failed",
    columns: { lane: "64", status: "'FAILED'", next_attempt_at: "'2020-01-01T00:00:00.000Z'" },
    readable: true,
  },
  {
    about: "lane: behind the last, of a delayed event",
    columns: { lane: "64", available_at: "'2020-01-01T00:00:00.000Z'" },
    readable: true,
  },
  {
    about: "lane: of other aggregates",
    columns: { aggregate_id: "'elsewhere'", lane: String((laneOf("Order", "elsewhere") + 1) % LANES) },
  },
];

const insertOf = ({ columns }: Kind, n: number): string => {
  const all = { aggregate_type: "'Order'", aggregate_id: `'hostile-${n}'`, event_type: "'OrderPlaced'", payload: "'{}'", ...columns };
  return `INSERT INTO outbox (${Object.keys(all).join(", ")}) VALUES (${Object.values(all).join(", ")})`;
};

/** Writes a row of each kind, past whatever would refuse it. */
export function writeHostile(db: SqliteDatabase): HostileRow[] {
  const triggers = db.prepare("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'outbox_carried%'").all() as {
    name: string;
    sql: string;
  }[];
  db.exec("PRAGMA ignore_check_constraints = ON");
  for (const { name } of triggers) db.exec(`DROP TRIGGER ${name}`);
  try {
    return hostileKinds.map((kind, n) => {
      db.exec(insertOf(kind, n));
      const [{ seq }] = db.prepare("SELECT last_insert_rowid() AS seq").all() as [{ seq: number }];
      return { about: kind.about, seq: BigInt(seq), readable: kind.readable === true };
    });
  } finally {
    for (const { sql } of triggers) db.exec(sql);
    db.exec("PRAGMA ignore_check_constraints = OFF");
  }
}
