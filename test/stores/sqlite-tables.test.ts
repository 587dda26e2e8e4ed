import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Claim } from "../../src/contracts/outbox-store.ts";
import { maxHeadersBytes } from "../../src/core/headers.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { defaultDriver, type SqliteDatabase } from "../../src/drivers/sqlite/driver.ts";
import { eventsAt } from "../../src/stores/sqlite/events.ts";
import { sqlite, type SqliteStore } from "../../src/stores/sqlite/index.ts";
import { delayed, now, pending, unlaned } from "../../src/stores/sqlite/predicates.ts";
import { draft } from "../support/outbox.ts";
import { hostileKinds } from "./sqlite-hostile.ts";

const open = await defaultDriver();
const event = (id: string): string =>
  `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '${id}', 'OrderPlaced', '{}')`;

let folder: string;
let path: string;
let db: SqliteDatabase;
let store: SqliteStore;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-tables-"));
  path = join(folder, "app.db");
  store = sqlite({ path });
  await store.schema.migrate();
  db = open(path);
});
afterEach(async () => {
  await store[Symbol.asyncDispose]();
  db.close();
  rmSync(folder, { recursive: true });
});

const all = (sql: string): Record<string, unknown>[] => db.prepare(sql).all() as Record<string, unknown>[];

async function claimed(): Promise<readonly Claim[]> {
  await store.leases.renew("r", 60_000);
  const holding = { relay: "r", lanes: await store.leases.take("r", [...Array(64).keys()]) };
  return (await store.outbox.claim(holding, { limit: 500, open: [], narrow: false })).claims;
}

describe("tables of an unreleased build", () => {
  /** Version 3 of an early build wrote no fingerprint, and a later build another one. */
  test.each([
    [
      "without a fingerprint",
      "DROP TABLE waybill_meta; CREATE TABLE waybill_meta (version INTEGER NOT NULL); INSERT INTO waybill_meta VALUES (3)",
    ],
    ["with another fingerprint", "UPDATE waybill_meta SET fingerprint = 'another'"],
  ])("%s are refused with a sentence that says what to do, and nothing is written", async (_, sql) => {
    db.exec(sql);
    db.exec(event("a"));
    const tables = "SELECT type, name, sql FROM sqlite_master ORDER BY name";
    const before = [all(tables), all("SELECT * FROM waybill_meta"), all("SELECT * FROM outbox")];
    const refusal = {
      code: "SCHEMA_UNRELEASED",
      message: expect.stringMatching(/app\.db.*publish what waits, then begin with new tables/) as string,
    };
    await expect(store.schema.check()).rejects.toMatchObject(refusal);
    await expect(store.schema.migrate()).rejects.toMatchObject(refusal);
    db.exec("BEGIN");
    expect(() => createOutbox({ store: sqlite({ path }) }).add(db, draft("b", 1))).toThrow(expect.objectContaining(refusal) as Error);
    db.exec("ROLLBACK");
    expect([all(tables), all("SELECT * FROM waybill_meta"), all("SELECT * FROM outbox")]).toEqual(before);
    const findings = await store.examine!([], new AbortController().signal);
    expect(findings.find(({ setting }) => setting === "schema version")).toMatchObject({ verdict: "bad", breaks: "L" });
  });
});

describe("the indexes and the view", () => {
  const squashed = (sql: string): string => sql.replaceAll(/\s+/g, " ").trim();
  const textOf = (name: string): string => squashed(String(all(`SELECT sql FROM sqlite_master WHERE name = '${name}'`)[0]!["sql"]));

  // SQLite uses a partial index only where a query repeats its condition.
  test.each([
    ["outbox_pending", pending],
    ["outbox_delayed", delayed],
    ["outbox_unlaned", unlaned],
  ])("%s holds the rows that the relay's statements ask for", (name, predicate) => {
    expect(textOf(name).endsWith(` WHERE ${predicate}`), textOf(name)).toBe(true);
  });

  test("the view shows what commands show", () => {
    expect(textOf("outbox_events")).toBe(`CREATE VIEW outbox_events AS ${squashed(eventsAt(now))}`);
  });
});

describe("the tables", () => {
  const refused = hostileKinds.filter(({ readable, about }) => readable !== true && !/UTF-8|bytes that are no text/.test(about));
  test.each(refused.map((kind) => [kind.about, kind] as const))("refuse %s", (_, { columns }) => {
    const row = { aggregate_type: "'Order'", aggregate_id: "'order-1'", event_type: "'OrderPlaced'", payload: "'{}'", ...columns };
    const sql = `(${Object.keys(row).join(", ")}) VALUES (${Object.values(row).join(", ")})`;
    expect(() => db.exec(`INSERT INTO outbox ${sql}`)).toThrow(/constraint/i);
    expect(() => db.exec(`INSERT OR IGNORE INTO outbox ${sql}`)).toThrow(/constraint/i);
    expect(all("SELECT * FROM outbox")).toEqual([]);
    expect(all("SELECT * FROM waybill_keys")).toEqual([]);
  });

  test.each([
    ["a FAILED event that is never due", "status", "'FAILED'"],
    ["a PUBLISHED event that is never purged", "status", "'PUBLISHED'"],
    ["a seq that stops all others", "seq", "9223372036854775807"],
    ["a lane that nobody owns", "lane", "5.5"],
    ["a lane of the writer's choice", "lane", "5"],
    ["a date that never comes", "available_at", "'9999-99-99T99:99:99.999Z'"],
  ])("refuse %s", (_, column, value) => {
    const sql = event("a").replace("payload)", `payload, ${column})`).replace("'{}')", `'{}', ${value})`);
    expect(() => db.exec(sql)).toThrow(/constraint/i);
  });

  test.each([
    ["a lane that nobody owns", "lane", "64"],
    ["a status that there is not", "status", "'pending'"],
  ])("refuse %s, with the CHECKs of the table turned off", (_, column, value) => {
    db.exec("PRAGMA ignore_check_constraints = ON");
    const sql = event("a").replace("payload)", `payload, ${column})`).replace("'{}')", `'{}', ${value})`);
    expect(() => db.exec(sql)).toThrow(/waybill constraint/);
  });

  test("refuse it in an UPDATE as well", () => {
    db.exec(event("a"));
    expect(() => db.exec("UPDATE outbox SET headers = '[]'")).toThrow(/headers must be a JSON object/);
    expect(() => db.exec("UPDATE outbox SET aggregate_id = x'ff'")).toThrow(/constraint/i);
  });

  test("take text, numbers, dates and headers as SQLite programs write them", async () => {
    db.exec(
      `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, event_version, payload, content_type, headers, idempotency_key, created_at, available_at)
       VALUES ('🚚', 5, '${"é".repeat(127)}', 'E', 2147483647, char(0), 'text/plain; charset="utf-8"', '{"a":1,"b":{"c":[]}}', 'k', CURRENT_TIMESTAMP, '2020-01-01T00:00:00.000Z')`,
    );
    const [claim] = await claimed();
    expect(claim).toMatchObject({ envelope: { id: "🚚", aggregateType: "5", headers: { a: "1", b: '{"c":[]}' } } });
    expect(claim!.unreadable).toBeUndefined();
  });

  test("take headers of as many bytes as add does, and not one more", () => {
    const bytes = (n: number): string =>
      event("a")
        .replace("payload)", "payload, headers)")
        .replace("'{}')", `'{}', '{"a":"${"x".repeat(n - 8)}"}')`);
    db.exec(bytes(maxHeadersBytes));
    expect(() => db.exec(bytes(maxHeadersBytes + 1))).toThrow(`headers must be a JSON object of ${maxHeadersBytes} bytes at most`);
    expect(() => db.exec(`UPDATE outbox SET headers = headers || ' '`)).toThrow("headers must be a JSON object");
  });
});
