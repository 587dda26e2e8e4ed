import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";

test("a payload that no process could hold is claimed unread, in one window with what is behind it", async () => {
  const folder = mkdtempSync(join(tmpdir(), "waybill-"));
  const path = join(folder, "app.db");
  const store = sqlite({ path });
  try {
    await store.schema.migrate();
    const db = (await defaultDriver())(path);
    const add = "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload_bytes) VALUES ('Order', 'o-1', 'OrderPlaced',";
    db.exec(`${add} zeroblob(300 * 1024 * 1024)); ${add} x'01')`);
    db.close();
    await store.leases.renew("r", 60_000);
    const lanes = Array.from({ length: 64 }, (_, lane) => lane);
    const holding = { relay: "r", lanes: await store.leases.take("r", lanes) };
    const request = { limit: 100, narrow: false, bytes: 1024 * 1024 };

    const first = await store.outbox.claim(holding, { ...request, open: [] });
    expect(first.claims.map(({ unread, envelope }) => [unread, envelope.data.byteLength])).toEqual([
      [300 * 1024 * 1024, 0],
      [undefined, 1],
    ]);
  } finally {
    await store[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  }
});
