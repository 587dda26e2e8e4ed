import assert from "node:assert/strict";
import type { LeaseStore } from "../contracts/lease-store.ts";
import type { StoreSuite } from "./harness.ts";
import { cases, near, skewMs, ttlMs } from "./scene.ts";

/** How long the statements of a case may take before a lease that it needs has expired: a server's clock cannot be stopped. */
const marginMs = 20_000;

async function ownersOf(leases: LeaseStore): Promise<Map<number, string | null>> {
  return new Map((await leases.look()).lanes.map(({ lane, owner }) => [lane, owner]));
}

export function leaseStoreSuite<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "leases");

  test("there are 64 lanes, free at first", async ({ store }) => {
    const { lanes, live } = await store.leases.look();
    assert.deepEqual(
      lanes.map(({ lane }) => lane).sort((a, b) => a - b),
      [...Array(64).keys()],
    );
    assert.ok(lanes.every(({ owner, epoch }) => owner === null && typeof epoch === "bigint"));
    assert.deepEqual(live, []);
  });

  test("the clock that it tells, if it tells one, is the one that events are stamped by", async (scene) => {
    const row = scene.row("a");
    await scene.add(row);
    const { now } = await scene.store.leases.look();
    const added = await scene.store.operator.show(row.id);
    if (now !== undefined) near(now, added!.createdAt.getTime());
  });

  test("a relay lives until its lease runs out, and as often as it renews", async ({ store, clock }) => {
    await store.leases.renew("r1", ttlMs);
    assert.deepEqual((await store.leases.look()).live, ["r1"]);
    await clock.advance(ttlMs - marginMs);
    await store.leases.renew("r1", ttlMs);
    await store.leases.renew("r2", ttlMs);
    await clock.advance(ttlMs - marginMs);
    assert.deepEqual([...(await store.leases.look()).live].sort(), ["r1", "r2"]);
    await clock.advance(marginMs + 2_000);
    assert.deepEqual((await store.leases.look()).live, []);
  });

  test("what a relay tells of its strategy is seen by all while it lives", async ({ store, clock }) => {
    const { leases } = store;
    await leases.renew("r1", ttlMs, 500, "competing");
    await leases.renew("r2", ttlMs * 10, 500, "leader");
    await leases.renew("r3", ttlMs * 10);
    assert.deepEqual([...(await leases.look()).strategies].sort(), [
      ["r1", "competing"],
      ["r2", "leader"],
    ]);
    await leases.renew("r2", ttlMs * 10, 500, "static");
    await clock.advance(ttlMs + 2_000);
    assert.deepEqual([...(await leases.look()).strategies], [["r2", "static"]]);
    await leases.leave("r2");
    assert.equal((await leases.look()).strategies.size, 0);
  });

  test("free lanes are taken, and owned ones are not", async ({ store }) => {
    const { leases } = store;
    for (const relay of ["r1", "r2"]) await leases.renew(relay, ttlMs);
    const one = await leases.take("r1", [1, 2, 3]);
    assert.deepEqual([...one.keys()].sort(), [1, 2, 3]);
    const two = await leases.take("r2", [3, 4, 1]);
    assert.deepEqual([...two.keys()], [4]);
    assert.equal((await leases.take("r1", [1, 2, 3])).size, 0, "a lane of one's own, under a live lease, is not taken again");
    const owners = await ownersOf(leases);
    assert.deepEqual([owners.get(0), owners.get(1), owners.get(3), owners.get(4)], [null, "r1", "r1", "r2"]);
    const { lanes } = await leases.look();
    assert.equal(lanes.find(({ lane }) => lane === 2)!.epoch, one.get(2));
    assert.equal((await leases.take("r1", [])).size, 0);
  });

  test("two that take at once share nothing", async ({ store }) => {
    const { leases } = store;
    const all = [...Array(64).keys()];
    await Promise.all(["r1", "r2", "r3"].map((relay) => leases.renew(relay, ttlMs)));
    const won = await Promise.all(["r1", "r2", "r3"].map((relay) => leases.take(relay, all)));
    assert.deepEqual(
      won.flatMap((lanes) => [...lanes.keys()]).sort((a, b) => a - b),
      all,
    );
  });

  test("the lanes of a relay whose lease has run out are free", async ({ store, clock }) => {
    const { leases } = store;
    await leases.renew("r1", ttlMs);
    await leases.take("r1", [1, 2]);
    await clock.advance(ttlMs - marginMs);
    await leases.renew("r2", ttlMs);
    assert.equal((await leases.take("r2", [1])).size, 0);
    await clock.advance(marginMs + 2_000);
    assert.deepEqual([...(await leases.take("r2", [1])).keys()], [1]);
    await leases.renew("r1", ttlMs);
    assert.equal((await leases.take("r1", [1])).size, 0);
    const owners = await ownersOf(leases);
    assert.deepEqual([owners.get(1), owners.get(2)], ["r2", "r1"]);
  });

  test("an epoch rises by one with every new owner, and with nothing else", async ({ store, clock }) => {
    const { leases } = store;
    const epochs: bigint[] = [];
    for (const relay of ["r1", "r2", "r3", "r1"]) {
      await leases.renew(relay, ttlMs);
      epochs.push((await leases.take(relay, [5])).get(5)!);
      await clock.advance(ttlMs + 2_000);
    }
    await leases.renew("r3", ttlMs);
    epochs.push((await leases.take("r3", [5])).get(5)!);
    await leases.renew("r3", ttlMs);
    await leases.give("r3", [5]);
    assert.equal((await leases.look()).lanes.find(({ lane }) => lane === 5)!.epoch, epochs[4], "giving back leaves the epoch");
    epochs.push((await leases.take("r3", [5])).get(5)!);
    const rising = epochs.map((_, n) => epochs[0]! + BigInt(n));
    assert.deepEqual(epochs, rising);
  });

  test("lanes that are given back are free at once; those of others are left alone", async ({ store }) => {
    const { leases } = store;
    for (const relay of ["r1", "r2"]) await leases.renew(relay, ttlMs);
    await leases.take("r1", [1, 2]);
    await leases.take("r2", [3]);
    await leases.give("r1", [1, 3, 9]);
    const owners = await ownersOf(leases);
    assert.deepEqual([owners.get(1), owners.get(2), owners.get(3)], [null, "r1", "r2"]);
    assert.deepEqual([...(await leases.take("r2", [1])).keys()], [1]);
    await leases.give("r1", []);
  });

  test("a relay that leaves gives everything back and is forgotten", async ({ store }) => {
    const { leases } = store;
    for (const relay of ["r1", "r2"]) await leases.renew(relay, ttlMs);
    await leases.take("r1", [1, 2]);
    await leases.take("r2", [3]);
    await leases.leave("r1");
    const { lanes, live } = await leases.look();
    assert.deepEqual(live, ["r2"]);
    const owned = lanes.filter(({ owner }) => owner !== null).map(({ lane }) => lane);
    assert.deepEqual(owned, [3]);
    await leases.leave("r1");
    await leases.leave("nobody");
    assert.deepEqual((await leases.look()).live, ["r2"]);
  });

  test("status tells who lives and what is owned", async ({ store, clock }) => {
    const { leases, operator } = store;
    const earliest = clock.now() + ttlMs - skewMs;
    await leases.renew("r1", ttlMs);
    const latest = clock.now() + ttlMs + skewMs;
    await leases.take("r1", [1, 2]);
    await leases.renew("r2", ttlMs * 10);
    await leases.take("r2", [3]);
    const before = await operator.status();
    assert.deepEqual(before.lanes, { total: 64, owned: 3, free: 61 });
    const one = before.relays.find(({ relay }) => relay === "r1")!;
    assert.deepEqual([one.live, [...one.lanes].sort(), one.window], [true, [1, 2], 0]);
    const expiresAt = one.expiresAt.getTime();
    assert.ok(earliest <= expiresAt && expiresAt <= latest, `${expiresAt} is not from ${earliest} to ${latest}`);
    await clock.advance(ttlMs + 2_000);
    const after = await operator.status();
    assert.deepEqual(after.lanes, { total: 64, owned: 1, free: 63 });
    assert.ok(after.relays.every(({ relay, live }) => live === (relay === "r2")));
  });
}
