import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createRelay } from "../../src/relay/create-relay.ts";
import { defaultDriver, type SqliteDatabase } from "../../src/drivers/sqlite/driver.ts";
import { sqlite, type SqliteStore } from "../../src/stores/sqlite/index.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

let folder: string;
let store: SqliteStore;
let db: SqliteDatabase;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-sequence-"));
  const path = join(folder, "app.db");
  store = sqlite({ path });
  await store.schema.migrate();
  db = (await defaultDriver())(path);
  db.exec("PRAGMA busy_timeout = 10000");
});
afterEach(async () => {
  await store[Symbol.asyncDispose]();
  db.close();
  rmSync(folder, { recursive: true });
});

/** Events 1 to `count` of one aggregate, in one transaction: the relay sees all of them or none. */
function add(aggregate: string, count: number): void {
  const rows = Array.from({ length: count }, (_, n) => `('Order', '${aggregate}', 'OrderPlaced', '{"n":${n + 1}}')`);
  db.exec(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ${rows.join(", ")}`);
}

test.each([
  ["that is empty", "DELETE FROM outbox"],
  ["that still has its later half", "DELETE FROM outbox WHERE seq <= 5"],
  ["that still has its earlier half", "DELETE FROM outbox WHERE seq > 5"],
])(
  "a sequence that is set back in a table %s, and passes its old place between two polls, delays and reorders nothing",
  async (_, purge) => {
    const sink = scriptedSink();
    const relay = createRelay({ store, sink, housekeeping: false });
    await relay.start();
    try {
      add("order-1", 10);
      await vi.waitFor(() => expect(sink.log).toHaveLength(10), 10_000);
      await vi.waitFor(async () => expect((await store.operator.status()).window.events).toBe(0), 10_000);
      db.exec(`BEGIN IMMEDIATE; ${purge}; UPDATE sqlite_sequence SET seq = 0 WHERE name = 'outbox'`);
      add("order-2", 14);
      db.exec("COMMIT");
      await vi.waitFor(() => expect(sink.log).toHaveLength(24), 10_000);
      expect(sink.log.slice(10).map(({ n }) => n)).toEqual(Array.from({ length: 14 }, (__, n) => n + 1));
    } finally {
      await relay.stop();
    }
  },
);
