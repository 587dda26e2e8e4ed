import assert from "node:assert/strict";
import type { StoreSuite } from "./harness.ts";
import { cases, heldFor, idsOf, judgeBy, near, parked, published, retry, returned, ttlMs } from "./scene.ts";

export function settlingCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "settling");

  test("published", async (scene, relay) => {
    const [id] = await scene.addTo("order-1", 1);
    const window = await relay.claim();
    await scene.clock.advance(5_000);
    assert.deepEqual(await relay.publish(window), { settled: 1, lost: [] });
    await scene.shows(id!, { state: "PUBLISHED", nextAttemptAt: null, retryCount: 0, lastError: null, owner: null, hold: null });
    near((await scene.show(id!)).publishedAt, scene.clock.now());
    assert.deepEqual(await relay.drain(), []);
  });

  test("retry, with its due time and its count", async (scene, relay) => {
    const [id] = await scene.addTo("order-1", 1);
    for (const failures of [1, 2, 3]) {
      const window = await relay.claim();
      assert.deepEqual(idsOf(window), [id]);
      assert.equal(window.claims[0]!.failures, failures - 1);
      assert.equal((await relay.settle(window, retry(60_000, `no ${failures}`))).settled, 1);
      const error = `no ${failures}`;
      await scene.shows(id!, { state: "FAILED", publishedAt: null, retryCount: failures, lastError: error, hold: error });
      near((await scene.show(id!)).nextAttemptAt, scene.clock.now() + 60_000);
      await scene.clock.advance(40_000);
      assert.equal((await relay.claim()).id, null);
      await scene.clock.advance(22_000);
    }
    assert.deepEqual(await relay.drain(), [id]);
    await scene.shows(id!, { state: "PUBLISHED", nextAttemptAt: null, retryCount: 3 });
    near((await scene.show(id!)).publishedAt, scene.clock.now());
  });

  test("a lane that was won again is lost under the epoch before", async (scene, before) => {
    await scene.addTo("order-1", 1);
    const window = await before.claim();
    const [{ lane }] = window.claims as [(typeof window.claims)[number]];
    await scene.store.leases.give("r1", [lane]);
    const epoch = (await scene.store.leases.take("r1", [lane])).get(lane);
    assert.notEqual(epoch, window.claims[0]!.epoch);
    assert.deepEqual(await before.settle(window, published), { settled: 0, lost: [lane] });
  });

  test("parked", async (scene, relay) => {
    const [id] = await scene.addTo("order-1", 1);
    await relay.settle(await relay.claim(), retry(0));
    assert.equal((await relay.settle(await relay.claim(), parked(false, "too large"))).settled, 1);
    await scene.shows(id!, { state: "DEAD", publishedAt: null, retryCount: 2, lastError: "too large" });
    await scene.clock.advance(1_000_000);
    assert.deepEqual(await relay.drain(), []);
  });

  test("returned changes nothing, and the event comes again at once", async (scene, relay) => {
    const [id] = await scene.addTo("order-1", 1);
    const before = await scene.show(id!);
    await relay.settle(await relay.claim(), returned);
    assert.deepEqual({ ...(await scene.show(id!)), lane: null }, { ...before, lane: null });
    assert.equal((await scene.status()).holds.aggregates, 0);
    const again = await relay.claim();
    assert.deepEqual(idsOf(again), [id]);
    assert.equal(again.claims[0]!.failures, 0);
    assert.equal(again.suspects, 0);
  });

  test("each event of a window has its own outcome", async (scene, relay) => {
    const ids = await scene.addEach(["a", "b", "c", "d", "e"]);
    const outcomes = new Map([
      [ids[1]!, retry(10_000)],
      [ids[2]!, parked()],
      [ids[3]!, returned],
      [ids[4]!, heldFor("order.events")],
    ]);
    assert.deepEqual((await relay.settle(await relay.claim(), judgeBy(outcomes))).lost, []);
    assert.deepEqual(await scene.states(ids), ["PUBLISHED", "FAILED", "DEAD", "PENDING", "BLOCKED"]);
  });

  test("a window may be settled in parts, and what is left stays claimed", async (scene, relay) => {
    const ids = await scene.addEach(["a", "a", "a", "b"]);
    const { id, claims } = await relay.claim();
    const part = async (from: number, to: number): Promise<unknown> =>
      scene.store.outbox.settle("r1", id!, claims.slice(from, to).map(published));
    assert.deepEqual(await part(0, 1), { settled: 1, lost: [] });
    assert.deepEqual(await scene.states(ids), ["PUBLISHED", "PUBLISHING", "PUBLISHING", "PUBLISHING"]);
    assert.equal((await scene.status()).window.events, 3);
    assert.equal((await relay.claim()).id, null);
    assert.deepEqual(await part(0, 2), { settled: 1, lost: [] }, "the first one is settled already");
    const heir = await scene.heir("heir");
    assert.equal((await heir.claim()).suspects, 2, "what was settled is no suspect");
    assert.deepEqual(await heir.drain({ narrow: true }), ids.slice(2));
  });

  test("a part that is settled again counts once", async (scene, relay) => {
    const ids = await scene.addEach(["a", "b"]);
    const { id, claims } = await relay.claim();
    for (const settled of [1, 0, 0]) {
      assert.deepEqual(await scene.store.outbox.settle("r1", id!, claims.slice(0, 1).map(retry(0))), { settled, lost: [] });
    }
    await scene.shows(ids[0]!, { state: "FAILED", retryCount: 1 });
  });

  test("a repeated settle is harmless", async (scene, relay) => {
    const ids = await scene.addTo("order-1", 1);
    const window = await relay.claim();
    await relay.settle(window, retry(0));
    for (const judge of [retry(0), published, parked(), heldFor("t")]) {
      assert.deepEqual(await relay.settle(window, judge), { settled: 0, lost: [] });
    }
    await scene.shows(ids[0]!, { state: "FAILED", retryCount: 1 });
    const next = await relay.claim();
    await relay.settle(window, retry(0));
    assert.equal((await relay.publish(next)).settled, 1);
  });

  test("a window that never was, or is another relay's, changes nothing", async (scene) => {
    const [a, b] = await scene.lanes();
    const ids = await scene.addTo(a!.aggregates[0]!, 1);
    const one = await scene.relay("r1", [a!.lane]);
    await scene.relay("r2", [b!.lane]);
    const { id, claims } = await one.claim();
    const outcomes = claims.map(published);
    assert.deepEqual(await scene.store.outbox.settle("r1", "00000000-0000-7000-8000-ffffffffffff", outcomes), { settled: 0, lost: [] });
    assert.equal((await scene.store.outbox.settle("r2", id!, outcomes)).settled, 0);
    assert.deepEqual(await scene.states(ids), ["PUBLISHING"]);
    assert.equal((await scene.store.outbox.settle("r1", id!, outcomes)).settled, 1);
  });

  test("after a take-over, the old owner settles the lanes it still has and no other, and only the lost ones have suspects", async (scene) => {
    const [a, b] = await scene.lanes();
    const taken = await scene.addTo(a!.aggregates[0]!, 2);
    const kept = await scene.addTo(b!.aggregates[0]!, 2);
    const old = await scene.relay("old", [a!.lane, b!.lane]);
    const window = await old.claim();
    const heir = await scene.heir("heir", [a!.lane]);
    assert.deepEqual([...(await heir.holding()).lanes.keys()], [a!.lane]);
    assert.equal((await heir.claim()).suspects, 2);
    const before = await scene.show(taken[0]!);
    assert.deepEqual(await old.settle(window, published), { settled: 2, lost: [a!.lane] });
    assert.deepEqual(await scene.states([...taken, ...kept]), ["PENDING", "PENDING", "PUBLISHED", "PUBLISHED"]);
    assert.deepEqual(await scene.show(taken[0]!), before);
    assert.deepEqual(await heir.drain({ narrow: true }), taken);
  });

  test("what a new owner has published stays so, whatever the old one says", async (scene) => {
    const ids = await scene.addEach(["a", "b", "c", "d"]);
    const old = await scene.relay("old");
    const window = await old.claim();
    const heir = await scene.heir("heir");
    const lanes = new Set(window.claims.map(({ lane }) => lane));
    await heir.drain({ narrow: true });
    await scene.clock.advance(60_000);
    const before = await scene.show(ids[0]!); // published a minute ago, so that a second publish would show
    const outcomes = new Map([
      [ids[0]!, retry(0)],
      [ids[1]!, parked()],
      [ids[2]!, heldFor("t")],
    ]);
    const { settled, lost } = await old.settle(window, judgeBy(outcomes));
    assert.equal(settled, 0);
    assert.ok(lost.every((lane) => lanes.has(lane)));
    assert.deepEqual(await scene.states(ids), ["PUBLISHED", "PUBLISHED", "PUBLISHED", "PUBLISHED"]);
    assert.deepEqual(await scene.show(ids[0]!), before);
    assert.equal((await scene.status()).holds.aggregates, 0);
  });

  test("a lease that has lapsed but was not taken still settles", async (scene, relay) => {
    const ids = await scene.addTo("order-1", 2);
    const window = await relay.claim();
    await scene.clock.advance(ttlMs * 2);
    await scene.relay("r2", []);
    assert.deepEqual(await relay.publish(window), { settled: 2, lost: [] });
    assert.deepEqual(await scene.states(ids), ["PUBLISHED", "PUBLISHED"]);
  });

  test("a lane that was given back cannot be settled any more", async (scene) => {
    const [a] = await scene.lanes();
    const ids = await scene.addTo(a!.aggregates[0]!, 1);
    const relay = await scene.relay("r1", [a!.lane]);
    const window = await relay.claim();
    await scene.store.leases.give("r1", [a!.lane]);
    assert.equal((await relay.publish(window)).settled, 0);
    assert.deepEqual(await scene.states(ids), ["PENDING"]);
  });
}
