import assert from "node:assert/strict";
import { otherTopics } from "../core/other-topics.ts";
import type { StoreSuite } from "./harness.ts";
import { cases, heldFor, idsOf, inOrder, judgeBy, near, parked, published, retry, returned } from "./scene.ts";

export function destinationCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "destinations");

  test("what waits for a destination leaves the scan, costs no attempt, and holds nobody else", async (scene, relay) => {
    const { aggregates } = (await scene.lanes())[0]!;
    const waiting = await scene.addTo(aggregates[0]!, 2);
    await relay.settle(await relay.claim(), heldFor("order.events", "no such topic"));
    const late = await scene.addTo(aggregates[0]!, 1);
    const flowing = await scene.addTo(aggregates[1]!, 2);
    assert.deepEqual(await relay.drain(), flowing);
    assert.deepEqual(await scene.states([...waiting, ...late]), ["BLOCKED", "BLOCKED", "BLOCKED"]);
    await scene.shows(waiting[0]!, { retryCount: 0, lastError: null, hold: "no such topic" });
    await scene.clock.advance(24 * 3_600_000);
    const { id, destinations } = await relay.claim();
    assert.deepEqual({ id, destinations }, { id: null, destinations: ["order.events"] });
    const [breaker, ...others] = (await scene.status()).breakers;
    assert.deepEqual(others, []);
    assert.deepEqual({ ...breaker!, since: null }, { destination: "order.events", why: "no such topic", since: null, aggregates: 1 });
    near(breaker!.since, scene.clock.now() - 24 * 3_600_000);

    assert.equal(await relay.release("order.events", 10), 1);
    assert.equal(await relay.release("order.events", 10), 0);
    assert.deepEqual(await relay.drain({ limit: 2 }), [...waiting, ...late]);
    assert.deepEqual((await relay.claim()).destinations, []);
    const { holds, breakers } = await scene.status();
    assert.deepEqual([holds.aggregates, breakers], [0, []]);
  });

  test("trials rotate: the longest waiting goes first, and one that is held again goes last", async (scene) => {
    const relay = await scene.relay("r1");
    const ids: string[] = [];
    for (const name of ["a", "b", "c"]) {
      ids.push(...(await scene.addTo(name, 1)));
      await relay.settle(await relay.claim(), heldFor("t"));
      await scene.clock.advance(2_000);
    }
    const [a, b, c] = ids;
    const tried: string[] = [];
    for (let round = 0; round < 6; round++) {
      assert.equal(await relay.release("t", 1), 1);
      const window = await relay.claim();
      tried.push(...idsOf(window));
      await relay.settle(window, heldFor("t"));
      await scene.clock.advance(2_000);
    }
    assert.deepEqual(tried, [a, b, c, a, b, c]);
    assert.deepEqual(await scene.states(ids), ["BLOCKED", "BLOCKED", "BLOCKED"]);
    assert.equal(await relay.release("t", 2), 2);
    assert.deepEqual(await relay.drain(), [a, b]);
    assert.deepEqual((await relay.claim()).destinations, ["t"]);
    assert.equal(await relay.release("t", 2), 1);
    assert.deepEqual(await relay.drain(), [c]);
  });

  test("each destination is its own", async (scene) => {
    const relay = await scene.relay("r1");
    const [a, b] = await scene.addEach(["a", "b"]);
    await relay.settle(await relay.claim(), judgeBy(new Map([[a!, heldFor("one")]]), heldFor("two")));
    assert.deepEqual([...(await relay.claim()).destinations].sort(), ["one", "two"]);
    assert.equal(await relay.release("three", 10), 0);
    assert.equal(await relay.release("two", 10), 1);
    assert.deepEqual(await relay.drain(), [b]);
    assert.deepEqual((await relay.claim()).destinations, ["one"]);
    assert.deepEqual(await scene.states([a!]), ["BLOCKED"]);
  });

  test("topics without a record of their own wait under one, and are found by name, in the order of their bytes", async (scene) => {
    const relay = await scene.relay("r1");
    const topics = ["z", "\u{1F600}", "a", "\uFF01", "B", "a.b"];
    const inOrder = ["B", "a", "a.b", "z", "\uFF01", "\u{1F600}"];
    const ids = await scene.addEach([...topics, ...topics].map((_, n) => `order-${n}`));
    const held = ids.map((id, n) => [id, heldFor(topics[n % topics.length]!, "no such topic", otherTopics)] as const);
    await relay.settle(await relay.claim(), judgeBy(new Map(held)));
    assert.deepEqual((await relay.claim()).destinations, [otherTopics]);
    assert.deepEqual(await relay.waitingFor(), inOrder);
    const { breakers, holds } = await scene.status();
    assert.deepEqual(
      breakers.map(({ since: _, ...record }) => record),
      [{ destination: otherTopics, why: "no such topic", aggregates: 12 }],
    );
    assert.deepEqual(new Set(holds.list.map(({ destination }) => destination)), new Set(topics));

    assert.equal(await relay.release("a", 10), 2);
    assert.deepEqual(await relay.drain(), [ids[2], ids[8]]);
    assert.equal(await relay.release(otherTopics, 10), 0);
    assert.deepEqual((await relay.claim()).destinations, [otherTopics], "others wait under it");
    for (const topic of topics) await relay.release(topic, 10);
    assert.equal((await relay.drain()).length, 10);
    await relay.release(otherTopics, 10);
    assert.deepEqual([await relay.waitingFor(), (await relay.claim()).destinations], [[], []]);
  });

  test("the record of other topics is kept in each lane where one waits, and does not count those with records", async (scene, relay) => {
    const [first, second] = await scene.lanes();
    const own = await scene.addTo(first!.aggregates[0]!, 1);
    await relay.settle(await relay.claim(), heldFor("own"));
    const strange = await scene.addTo(first!.aggregates[1]!, 1);
    await scene.addTo(second!.aggregates[0]!, 1);
    await relay.settle(await relay.claim(), heldFor("strange", "away", otherTopics));
    const records = async () => (await scene.status()).breakers.map(({ destination, aggregates }) => [destination, aggregates]);
    assert.deepEqual((await records()).sort(), [
      [otherTopics, 2],
      ["own", 1],
    ]);
    await relay.release(otherTopics, 1);
    assert.deepEqual((await records()).length, 2, "nothing was let go");
    assert.equal(await relay.release("strange", 10), 2);
    await relay.drain();
    await relay.release(otherTopics, 1);
    assert.deepEqual(await records(), [["own", 1]]);
    assert.deepEqual(await scene.states([...own, ...strange]), ["BLOCKED", "PUBLISHED"]);
  });

  test("a new owner finds what waits and can release it", async (scene) => {
    const old = await scene.relay("old");
    const left = await scene.addTo("order-1", 2);
    await old.settle(await old.claim(), heldFor("t"));
    await scene.store.leases.leave("old");
    const heir = await scene.relay("heir");
    assert.deepEqual((await heir.claim()).destinations, ["t"]);
    const third = await scene.heir("third");
    assert.deepEqual((await third.claim()).destinations, ["t"]);
    assert.equal(await heir.release("t", 10), 0, "an owner of yesterday releases nothing");
    assert.equal(await third.release("t", 10), 1);
    assert.deepEqual(await third.drain(), left);
  });

  test("only lanes of the holding are released, and only their destinations are told", async (scene) => {
    const [a, b] = await scene.lanes();
    await scene.addTo(a!.aggregates[0]!, 1);
    const theirs = await scene.addTo(b!.aggregates[0]!, 1);
    const one = await scene.relay("r1", [a!.lane]);
    const two = await scene.relay("r2", [b!.lane]);
    await one.settle(await one.claim(), heldFor("t"));
    await two.settle(await two.claim(), heldFor("t"));
    assert.equal(await one.release("t", 10), 1);
    await one.drain();
    assert.deepEqual((await one.claim()).destinations, []);
    assert.deepEqual((await two.claim()).destinations, ["t"]);
    assert.deepEqual(await scene.states(theirs), ["BLOCKED"]);
  });

  test("a failed event whose destination is gone keeps its count", async (scene, relay) => {
    const [cause, follower] = await scene.addTo("order-1", 2);
    await relay.settle(await relay.claim({ limit: 1 }), retry(0));
    await relay.settle(await relay.claim(), heldFor("t"));
    await scene.clock.advance(1_000_000);
    assert.deepEqual(await relay.drain(), []);
    assert.deepEqual(await scene.states([cause!, follower!]), ["BLOCKED", "BLOCKED"]);
    assert.equal(await relay.release("t", 1), 1);
    const window = await relay.claim({ limit: 1 });
    assert.deepEqual(idsOf(window), [cause]);
    assert.equal(window.claims[0]!.failures, 1);
    await relay.publish(window);
    assert.deepEqual(await relay.drain(), [follower]);
  });

  test("an earlier failure stays the cause when a later event's destination is gone", async (scene, relay) => {
    const [cause] = await scene.addTo("order-1", 1);
    const one = await relay.claim();
    const [follower] = await scene.addTo("order-1", 1);
    const two = await relay.claim();
    await relay.settle(one, retry(5_000));
    await relay.settle(two, heldFor("t"));
    await relay.release("t", 10);
    assert.deepEqual(await relay.drain(), []);
    assert.deepEqual(await scene.states([cause!, follower!]), ["FAILED", "BLOCKED"]);
    await scene.clock.advance(7_000);
    assert.deepEqual(await relay.drain(), [cause, follower]);
    await relay.release("t", 10);
    assert.deepEqual((await relay.claim()).destinations, []);
  });

  test("an event that is refused at its trial holds its followers as any failed event does", async (scene, relay) => {
    const [cause, ...followers] = await scene.addTo("order-1", 3);
    await relay.settle(await relay.claim(), heldFor("t"));
    await relay.release("t", 1);
    await relay.settle(await relay.claim(), judgeBy(new Map([[cause!, retry(5_000)]]), returned));
    assert.deepEqual(await relay.drain(), []);
    assert.deepEqual((await relay.claim()).destinations, []);
    assert.deepEqual(await scene.states([cause!, ...followers]), ["FAILED", "BLOCKED", "BLOCKED"]);
    await scene.clock.advance(7_000);
    assert.deepEqual(await relay.drain(), [cause, ...followers]);
  });

  test("an aggregate that spans destinations waits for each in turn", async (scene, relay) => {
    const [first, second, third] = await scene.addTo("order-1", 3);
    await relay.settle(await relay.claim(), judgeBy(new Map([[second!, heldFor("two")]]), heldFor("one")));
    assert.deepEqual(await relay.drain(), []);
    await relay.release("two", 10);
    assert.deepEqual(await relay.drain(), [], "the first one's destination decides");
    assert.equal(await relay.release("one", 10), 1);
    const window = await relay.claim();
    assert.deepEqual(idsOf(window)[0], first);
    await relay.settle(window, judgeBy(new Map([[first!, published]]), heldFor("two")));
    assert.deepEqual(await relay.drain(), []);
    assert.deepEqual((await relay.claim()).destinations, ["two"]);
    assert.equal(await relay.release("two", 10), 1);
    assert.deepEqual(await relay.drain(), [second, third]);
  });

  test("many aggregates are released in steps, each in its own order", async (scene, relay) => {
    const ids = await scene.addEach(Array.from({ length: 120 }, (_, n) => `order-${n % 40}`));
    await relay.settle(await relay.claim(), heldFor("t"));
    const seen: string[] = [];
    let released = 0;
    for (let n = 1; n > 0; released += n) {
      n = await relay.release("t", 7);
      assert.ok(n <= 7);
      seen.push(...(await relay.drain({ limit: 5 })));
    }
    assert.deepEqual([released, seen.length], [40, ids.length]);
    for (const n of Array(40).keys()) {
      inOrder(
        seen,
        ids.filter((_, at) => at % 40 === n),
      );
    }
  });

  test("a dead event and a destination's event are told apart in one lane", async (scene, relay) => {
    const { aggregates } = (await scene.lanes())[0]!;
    const [dead] = await scene.addTo(aggregates[0]!, 1);
    const [held] = await scene.addTo(aggregates[1]!, 1);
    await relay.settle(await relay.claim(), judgeBy(new Map([[dead!, parked()]]), heldFor("t")));
    assert.equal(await relay.release("t", 10), 1);
    assert.deepEqual(await relay.drain(), [held]);
    assert.deepEqual(await scene.states([dead!]), ["DEAD"]);
  });
}
