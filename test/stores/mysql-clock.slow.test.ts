import { expect } from "vitest";
import { systemClock, type Clock } from "../../src/core/clock.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { ownMariadb } from "./mariadb-own.ts";
import type { MysqlHarness } from "./mysql-harness.ts";
import { all } from "./mysql-relay.ts";

const hourMs = 3_600_000;
const ttlMs = 30_000;

/** A process with a store of its own, whose monotonic clock can be told to go on. */
function processOn({ pool }: MysqlHarness): { readonly store: ReturnType<typeof mysql>; wait(ms: number): void } {
  let passed = 0;
  const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + passed };
  return { store: mysql({ pool, clock }), wait: (ms) => void (passed += ms) };
}

/** The server's clock cannot be set by a test; that everything written is so much older or younger comes to the same. */
async function step({ pool }: MysqlHarness, ms: number): Promise<void> {
  for (const table of ["waybill_relays", "waybill_seats"])
    await pool.query(
      `UPDATE ${table} SET renewed_at = renewed_at - INTERVAL ${ms * 1000} MICROSECOND, expires_at = expires_at - INTERVAL ${ms * 1000} MICROSECOND`,
    );
}

await describeWith("mariadb", "a MariaDB whose clock steps", () => {
  const { own } = ownMariadb();
  const seat = (owner: string): { consumer: string; topic: string; owner: string } => ({ consumer: "c", topic: "t", owner });

  for (const known of [true, false])
    own(
      `forward by an hour takes no lanes or seat from who is alive, ${known ? "known before" : "seen for the first time"}`,
      async (harness) => {
        const [one, two] = [processOn(harness), processOn(harness)];
        await one.store.leases.renew("r1", ttlMs);
        expect((await one.store.leases.take("r1", all)).size).toBe(64);
        expect(await one.store.inbox.sit(seat("r1"), ttlMs)).toBe(true);
        if (known) {
          expect((await two.store.leases.look()).live).toEqual(["r1"]);
          expect(await two.store.inbox.sit(seat("r2"), ttlMs)).toBe(false);
        }
        await step(harness, hourMs);
        await two.store.leases.renew("r2", ttlMs);
        expect([...(await two.store.leases.look()).live].sort()).toEqual(["r1", "r2"]);
        expect((await two.store.leases.take("r2", all)).size).toBe(0);
        expect(await two.store.inbox.sit(seat("r2"), ttlMs)).toBe(false);
        two.wait(ttlMs / 3);
        await one.store.leases.renew("r1", ttlMs);
        expect(await one.store.inbox.sit(seat("r1"), ttlMs)).toBe(true);
        two.wait(ttlMs * 0.6);
        expect((await two.store.leases.take("r2", all)).size).toBe(0);
        expect(await two.store.inbox.sit(seat("r2"), ttlMs)).toBe(false);
      },
    );

  own("back by an hour keeps no dead relay's lanes and no dead subscriber's seat for the hour", async (harness) => {
    const [one, two] = [processOn(harness), processOn(harness)];
    await one.store.leases.renew("r1", ttlMs);
    expect((await one.store.leases.take("r1", all)).size).toBe(64);
    expect(await one.store.inbox.sit(seat("r1"), ttlMs)).toBe(true);
    await step(harness, -hourMs);
    await two.store.leases.renew("r2", ttlMs);
    expect((await two.store.leases.take("r2", all)).size).toBe(0);
    expect(await two.store.inbox.sit(seat("r2"), ttlMs)).toBe(false);
    two.wait(ttlMs + 1_000);
    expect((await two.store.leases.take("r2", all)).size).toBe(64);
    expect(await two.store.inbox.sit(seat("r2"), ttlMs)).toBe(true);
    await two.store.leases.renew("r2", ttlMs);
    expect(await harness.rows("SELECT relay FROM waybill_relays")).toEqual([["r2"]]);
  });
});
