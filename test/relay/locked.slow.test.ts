import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { LANES } from "../../src/core/lane.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { draft } from "../support/outbox.ts";
import { firstDeliveries, scriptedSink } from "../support/scripted-sink.ts";

const leaseMs = 3_000;

describe("a transaction that holds the SQLite file for three leases", () => {
  test.each([
    ["partitioned", 10_000],
    ["partitioned", 200],
    ["leader", 10_000],
  ] as const)(
    "costs no lane and no duplicate, with coordination %s and locks waited for during %d ms",
    async (coordination, lockTimeoutMs) => {
      // In memory where the machine allows: a slow disk may cost a lease too.
      const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "waybill-"));
      const path = join(folder, "app.db");
      const stores = Array.from({ length: 3 }, () => sqlite({ path, lockTimeoutMs }));
      const [writer, ...others] = stores as [ReturnType<typeof sqlite>, ...ReturnType<typeof sqlite>[]];
      await writer.schema.migrate();
      const db = (await defaultDriver())(path);
      const outbox = createOutbox({ store: writer });
      const all = 2_000;
      const drafts = Array.from({ length: all }, (_, i) => draft(`o-${i % 100}`, Math.floor(i / 100) + 1));
      const events: PathEvent[] = [];
      const sink = scriptedSink({ before: () => sleep(20) });
      const relays = others.map((store) =>
        createRelay({ store, sink, coordination, leaseMs, batch: 20, observe: (event) => void events.push(event) }),
      );
      for (const relay of relays) await relay.start();
      try {
        // Lanes that are still being shared out would change hands by themselves.
        const shares = async (): Promise<readonly number[]> => {
          const owners = (await writer.leases.look()).lanes.flatMap(({ owner }) => (owner === null ? [] : [owner]));
          return [...new Set(owners)].map((each) => owners.filter((owner) => owner === each).length);
        };
        const settledIn = coordination === "leader" ? [LANES] : [LANES / 2, LANES / 2];
        await expect.poll(shares, { timeout: 20_000 }).toEqual(settledIn);
        const before = (await writer.leases.look()).lanes;
        await outbox.transaction(db, (tx) => outbox.add(tx, drafts.slice(0, all / 2)));
        await expect.poll(() => sink.log.length, { timeout: 10_000 }).toBeGreaterThan(100);

        await outbox.transaction(db, async (tx) => {
          await outbox.add(tx, drafts.slice(all / 2));
          await sleep(3 * leaseMs);
        });
        const { states } = await writer.operator.status();
        expect(states.PUBLISHED, "it came in the middle").toBeLessThan(all);
        await expect.poll(async () => (await writer.operator.status()).states.PUBLISHED, { timeout: 60_000, interval: 200 }).toBe(all);
        expect(events.filter(({ type }) => type === "lanes.lost")).toEqual([]);
        expect((await writer.leases.look()).lanes).toEqual(before);
        expect(sink.log).toHaveLength(all);
        for (const [aggregate, order] of firstDeliveries(sink.log)) expect(order, aggregate).toEqual(order.map((_, i) => i + 1));
      } finally {
        await Promise.all(relays.map((relay) => relay.drain()));
        for (const store of stores) await store[Symbol.asyncDispose]();
        db.close();
        rmSync(folder, { recursive: true });
      }
    },
  );
});
