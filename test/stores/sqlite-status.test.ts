import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { defaultDriver, type SqliteDatabase } from "../../src/drivers/sqlite/driver.ts";
import { sqlite, type SqliteStore } from "../../src/stores/sqlite/index.ts";

const open = await defaultDriver();
const now = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
let folder: string;
let store: SqliteStore;
let db: SqliteDatabase;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-status-"));
  const path = join(folder, "app.db");
  store = sqlite({ path });
  await store.schema.migrate();
  db = open(path);
  db.exec("PRAGMA synchronous = OFF");
});
afterEach(async () => {
  await store[Symbol.asyncDispose]();
  db.close();
  rmSync(folder, { recursive: true });
});

function add(events: number, columns: Readonly<Record<string, string>> = {}): void {
  const row = { aggregate_type: "'Order'", aggregate_id: "i % 500", event_type: "'E'", payload: "'{}'", ...columns };
  db.exec(
    `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${events})
     INSERT INTO outbox (${Object.keys(row).join(", ")}) SELECT ${Object.values(row).join(", ")} FROM n`,
  );
}
const published = { status: "'PUBLISHED'", published_at: now };

test("counts are exact up to 100,000 of a state, and an estimate above, named as one", async () => {
  add(100_000, published);
  add(3);
  const before = await store.operator.status();
  expect([before.states.PUBLISHED, before.states.PENDING, before.estimated]).toEqual([100_000, 3, []]);
  add(20_000, published);
  add(7, { status: "'DEAD'", last_error: "'no'" });
  const { states, estimated, dead } = await store.operator.status();
  expect(estimated).toEqual(["PUBLISHED"]);
  expect(Math.abs(states.PUBLISHED - 120_000)).toBeLessThan(6_000);
  expect(states).toMatchObject({ PENDING: 3, DEAD: 7, FAILED: 0, BLOCKED: 0, DISCARDED: 0 });
  expect(dead).toMatchObject([{ error: "no", events: 7 }]);
});

test("of more than are counted, the oldest is found, gaps are no events, and the estimate is the same each time", async () => {
  add(1, { created_at: "'2020-01-01T00:00:00.000Z'", aggregate_id: "'oldest'" });
  add(101_000, { seq: "i * 1000" });
  db.exec("UPDATE outbox SET lane = seq / 1000 % 64"); // as a relay fills it in
  const { states, estimated, oldestUnpublishedMs } = await store.operator.status();
  expect(estimated).toEqual(["PENDING"]);
  expect(states.PENDING).toBeGreaterThan(100_000);
  expect(states.PENDING).toBeLessThan(1_000_000);
  expect(Math.abs(oldestUnpublishedMs! - (Date.now() - Date.UTC(2020, 0, 1)))).toBeLessThan(600_000);
  expect((await store.operator.status()).states).toEqual(states);
});

test("no statement of status reads the table from end to end", async () => {
  add(2_000, published);
  add(2_000);
  const plans: string[] = [];
  const watching = sqlite({
    path: join(folder, "app.db"),
    open: (path) => {
      const inner = open(path);
      return {
        exec: (sql) => inner.exec(sql),
        close: () => inner.close(),
        prepare(sql) {
          if (/^SELECT/.test(sql))
            for (const step of inner.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { detail: string }[]) plans.push(step.detail);
          return inner.prepare(sql);
        },
      };
    },
  });
  await watching.operator.status();
  await watching[Symbol.asyncDispose]();
  expect(plans.length).toBeGreaterThan(10);
  expect(plans.filter((plan) => /^SCAN (outbox|o)\b(?!.*INDEX)/.test(plan))).toEqual([]);
});
