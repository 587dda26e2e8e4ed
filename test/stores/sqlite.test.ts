import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "vitest";
import { inboxSuite, leaseStoreSuite, operatorSuite, outboxStoreSuite, schemaSuite, type AuditLine, type StoreHarness, type StoreSuite } from "../../src/conformance/index.ts";
import { defaultDriver, type SqliteDatabase } from "../../src/sqlite/driver.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

const open = await defaultDriver();

async function create(): Promise<StoreHarness<SqliteDatabase, SqliteDatabase>> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-store-"));
  const path = join(folder, "app.db");
  const clock = manualClock(Date.now()); // created_at is SQLite's own clock
  const store = sqlite({ path, clock });
  await store.schema.migrate();
  const opened: SqliteDatabase[] = [];
  const connect = (): SqliteDatabase => {
    const db = open(path);
    db.exec("PRAGMA busy_timeout = 5000");
    opened.push(db);
    return db;
  };
  const db = connect();
  db.exec("CREATE TABLE effects (name TEXT NOT NULL)");
  return {
    store,
    db,
    clock,
    async begin() {
      const tx = connect();
      tx.exec("BEGIN IMMEDIATE");
      return {
        tx,
        commit: async () => void tx.exec("COMMIT"),
        rollback: async () => void tx.exec("ROLLBACK"),
      };
    },
    effect: (tx, name) => void tx.prepare("INSERT INTO effects (name) VALUES (?)").run(name),
    effects: async () => (db.prepare("SELECT name FROM effects").all() as { name: string }[]).map(({ name }) => name),
    lose: (tx) => void tx.exec("ROLLBACK"),
    audit: async () => db.prepare("SELECT who, action, events FROM waybill_audit ORDER BY rowid").all().map((line) => ({ ...(line as AuditLine) })),
    async close() {
      await store[Symbol.asyncDispose]();
      for (const each of opened) each.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const suite: StoreSuite<SqliteDatabase, SqliteDatabase> = {
  test,
  create,
  can: { claimBesideWriter: false, parallelWriters: false, loseTransaction: true },
};

describe("sqlite", () => {
  outboxStoreSuite(suite);
  leaseStoreSuite(suite);
  inboxSuite(suite);
  operatorSuite(suite);
  schemaSuite(suite);
});
