import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Claim } from "../../src/contracts/outbox-store.ts";
import { defaultDriver, type SqliteDatabase } from "../../src/drivers/sqlite/driver.ts";
import { sqlite, type SqliteStore } from "../../src/stores/sqlite/index.ts";
import { hostileKinds, writeHostile } from "./sqlite-hostile.ts";

const version1 = readFileSync(new URL("sqlite-v1.sql", import.meta.url), "utf8");
const open = await defaultDriver();
const event = (id: string): string =>
  `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '${id}', 'OrderPlaced', '{}')`;

let folder: string;
let path: string;
let db: SqliteDatabase;
let store: SqliteStore;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "waybill-migration-"));
  path = join(folder, "app.db");
  db = open(path);
  db.exec("PRAGMA busy_timeout = 10000");
  db.exec(version1);
  store = sqlite({ path });
});
afterEach(async () => {
  await store[Symbol.asyncDispose]();
  db.close();
  rmSync(folder, { recursive: true });
});

const all = (sql: string): Record<string, unknown>[] => db.prepare(sql).all() as Record<string, unknown>[];

/** Publishes what can be carried and parks the rest, until nothing is left. */
async function drain(): Promise<readonly Claim[]> {
  await store.leases.leave("r");
  await store.leases.renew("r", 60_000);
  const holding = { relay: "r", lanes: await store.leases.take("r", [...Array(64).keys()]) };
  const taken: Claim[] = [];
  for (;;) {
    const { id, claims, more } = await store.outbox.claim(holding, { limit: 500, open: [], narrow: false });
    if (id === null && !more) return taken;
    taken.push(...claims);
    if (id === null) continue;
    const outcome = (claim: Claim) =>
      claim.unreadable === undefined
        ? ({ claim, as: "published" } as const)
        : ({ claim, as: "parked", error: claim.unreadable, release: false } as const);
    await store.outbox.settle("r", id, claims.map(outcome));
  }
}

describe("tables of version 2", () => {
  test("become those of a new file, and their letters and errors are told, found and redriven", async () => {
    const file = join(folder, "version-2.db");
    const before = open(file);
    before.exec(readFileSync(new URL("sqlite-v2.sql", import.meta.url), "utf8"));
    before.exec(event("a").replace("payload)", "payload, status, last_error)").replace("'{}')", "'{}', 'DEAD', 'MESSAGE_TOO_LARGE: no')"));
    const letter = "'billing', 'orders', 'Order', '1', 'E'";
    for (const [id, error] of [
      ["e1", "no such account"],
      ["e2", "no (the inbox did not take its 9 bytes: these are the first 3)"],
    ])
      before.exec(
        `INSERT INTO waybill_letters (parked_at, consumer, topic, aggregate_type, aggregate_id, event_type, id, digest, envelope, data, error_code, error, attempts, handler_version)
         VALUES ('2026-01-01T00:00:00.000Z', ${letter}, '${id}', '', '{}', x'', 'HANDLER', '${error}', 5, 1)`,
      );
    const migrated = sqlite({ path: file });
    expect(await migrated.schema.migrate()).toEqual([3]);
    await store.schema.migrate();
    const tables = (of: SqliteDatabase): unknown[] =>
      (of.prepare("SELECT name, sql FROM sqlite_master ORDER BY name").all() as { sql: string | null }[]).map((row) => ({ ...row }));
    expect(tables(before)).toEqual(tables(db));
    expect((await migrated.operator.status()).dead).toMatchObject([{ error: "MESSAGE_TOO_LARGE: no", events: 1 }]);
    expect((await migrated.operator.redrive({ error: "MESSAGE_TOO" }, { who: "ann", dryRun: true })).events).toBe(1);
    expect(await migrated.letters.redrive({ consumer: "billing" }, { who: "ann", dryRun: false })).toMatchObject({
      letters: 1,
      unfit: 1,
      ids: ["e1"],
    });
    await migrated[Symbol.asyncDispose]();
    before.close();
  });
});

describe("tables of version 1", () => {
  test("are refused until they are migrated, and events in every state are there afterwards", async () => {
    for (const status of ["PENDING", "PUBLISHED", "BLOCKED", "DEAD", "DISCARDED"])
      db.exec(event(status).replace("payload)", "payload, status)").replace("'{}')", `'{}', '${status}')`));
    db.exec("INSERT INTO inbox VALUES ('billing', 'e1', '2026-01-01T00:00:00.000Z', 1)");
    await expect(store.schema.check()).rejects.toMatchObject({ code: "NOT_MIGRATED", message: /version 1.*needs 3/ });
    const columns = Object.keys(all("SELECT * FROM outbox")[0]!).join(", ");
    const before = all(`SELECT ${columns} FROM outbox ORDER BY seq`);
    expect(await store.schema.migrate()).toEqual([2, 3]);
    expect(await store.schema.migrate()).toEqual([]);
    await store.schema.check();
    expect(all(`SELECT ${columns} FROM outbox ORDER BY seq`)).toEqual(before);
    expect(await store.inbox.once({ consumer: "billing", id: "e1" }, 1, () => expect.unreachable())).toBe("seen");
    expect((await drain()).map(({ envelope }) => envelope.aggregateId)).toEqual(["PENDING"]);
  });

  test("become those of a fresh file", async () => {
    await store.schema.migrate();
    const fresh = sqlite({ path: join(folder, "fresh.db") });
    await fresh.schema.migrate();
    const tables = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name";
    const other = open(join(folder, "fresh.db"));
    expect(other.prepare(tables).all()).toEqual(all(tables));
    other.close();
    await fresh[Symbol.asyncDispose]();
  });

  test("that hold every hostile row are migrated; those rows end DEAD with the cause in words, and the rest is published", async () => {
    const kinds = hostileKinds.filter(({ checked, columns }) => checked !== true && columns["available_at"] === undefined);
    db.exec(event("before"));
    const hostile = writeHostile(db, kinds);
    db.exec(event("after"));
    await store.schema.migrate();
    const taken = new Map((await drain()).map((claim) => [claim.envelope.seq, claim]));
    for (const { about, seq, readable } of hostile) {
      expect(taken.has(seq), about).toBe(true);
      expect(all(`SELECT status FROM outbox WHERE seq = ${seq}`)[0], about).toMatchObject({
        status: readable === true ? "PUBLISHED" : "DEAD",
      });
    }
    const { states, dead } = await store.operator.status();
    const unreadable = hostile.filter(({ readable }) => readable !== true).length;
    expect(states).toMatchObject({ PENDING: 0, FAILED: 0, DEAD: unreadable, PUBLISHED: 2 + hostile.length - unreadable });
    for (const { error } of dead) expect(error).toMatch(/\w+ \w+/);
  });

  test("with rows that no claim would ever reach are put right", async () => {
    db.exec(event("failed").replace("payload)", "payload, status)").replace("'{}')", "'{}', 'FAILED')"));
    db.exec(event("late").replace("payload)", "payload, status, next_attempt_at)").replace("'{}')", "'{}', 'FAILED', 'zzz')"));
    db.exec(event("laned").replace("payload)", "payload, lane)").replace("'{}')", "'{}', 5.5)"));
    db.exec(event("delayed").replace("payload)", "payload, available_at)").replace("'{}')", "'{}', '9999-99-99T99:99:99.999Z')"));
    await store.schema.migrate();
    expect((await drain()).map(({ envelope }) => envelope.aggregateId).sort()).toEqual(["failed", "laned", "late"]);
    expect(await store.operator.list({ limit: 10, state: "DEAD" })).toMatchObject([
      { aggregateId: "delayed", lastError: "ROW_UNREADABLE: available_at is not a date" },
    ]);
  });

  test("with a seq at the end of its range take events again", async () => {
    db.exec(event("first"));
    db.exec(event("last").replace("(aggregate_type", "(seq, aggregate_type").replace("VALUES (", "VALUES (9223372036854775807, "));
    db.exec(event("nearly").replace("(aggregate_type", "(seq, aggregate_type").replace("VALUES (", "VALUES (9223372036854775000, "));
    expect(() => db.exec(event("next"))).toThrow(/full/);
    await store.schema.migrate();
    db.exec(event("next"));
    expect((await drain()).map(({ envelope }) => envelope.aggregateId)).toEqual(["first", "nearly", "last", "next"]);
  });

  test("are migrated while another process writes, and nothing is lost", async () => {
    const writer = fork(new URL("sqlite-writer.mjs", import.meta.url), [path]);
    try {
      await once(writer, "message");
      expect(await store.schema.migrate()).toEqual([2, 3]);
      await once(writer, "message");
      await drain();
      let added = 0;
      const closed = new Promise<void>((resolve, reject) => {
        writer.on("message", (message) => (message === "closed" ? resolve() : (added = message as number)));
        writer.once("exit", (code) => (code === 0 ? resolve() : reject(new Error(`the writer ended with ${code}`))));
      });
      writer.send("stop");
      await closed;
      await drain();
      expect(added).toBeGreaterThan(0);
      expect((await store.operator.status()).states).toMatchObject({ PUBLISHED: added, PENDING: 0 });
    } finally {
      writer.kill();
    }
  });
});

describe("tables of version 2", () => {
  beforeEach(() => store.schema.migrate());

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

  test("take what they took before", async () => {
    db.exec(
      `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, event_version, payload, content_type, headers, idempotency_key, created_at, available_at)
       VALUES ('🚚', 5, '${"é".repeat(127)}', 'E', 2147483647, char(0), 'text/plain; charset="utf-8"', '{"a":1,"b":{"c":[]}}', 'k', CURRENT_TIMESTAMP, '2020-01-01T00:00:00.000Z')`,
    );
    const [claim] = await drain();
    expect(claim).toMatchObject({ envelope: { id: "🚚", aggregateType: "5", headers: { a: "1", b: '{"c":[]}' } } });
    expect(claim!.unreadable).toBeUndefined();
  });
});
