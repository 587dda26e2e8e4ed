import assert from "node:assert/strict";
import type { Claim, Outcome } from "../contracts/outbox-store.ts";
import type { StoreSuite } from "./harness.ts";
import { by, cases, idsOf, judgeBy, near, parked, retry, returned, type SceneRelay, type Scene } from "./scene.ts";

async function holdsOf<Db, Tx>(scene: Scene<Db, Tx>): Promise<number> {
  return (await scene.status()).holds.aggregates;
}

interface Held {
  readonly relay: SceneRelay;
  /** The first event of the aggregate. */
  readonly cause: string;
  readonly followers: readonly string[];
}

/** Adds that many events of one aggregate, and settles the first, which was claimed alone. */
async function settleFirst<Db, Tx>(scene: Scene<Db, Tx>, count: number, outcome: (claim: Claim) => Outcome): Promise<Held> {
  const [cause, ...followers] = await scene.addTo("order-1", count);
  const relay = await scene.relay("r1");
  await relay.settle(await relay.claim({ limit: 1 }), outcome);
  return { relay, cause: cause!, followers };
}

export function holdCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "holds");

  test("followers of a failed event wait, late ones too, and nobody else does", async (scene, relay) => {
    const { aggregates } = (await scene.lanes())[0]!;
    const [cause, ...followers] = await scene.addTo(aggregates[0]!, 4);
    await relay.settle(await relay.claim(), judgeBy(new Map([[cause!, retry(10_000, "no")]]), returned));
    const neighbour = await scene.addTo(aggregates[1]!, 2);
    assert.deepEqual(await relay.drain(), neighbour);
    assert.deepEqual(await scene.states([cause!, ...followers]), ["FAILED", "BLOCKED", "BLOCKED", "BLOCKED"]);
    const late = await scene.addTo(aggregates[0]!, 2);
    await scene.shows(late[0]!, { state: "PENDING", hold: "no" }); // the hold shows before a claim has met the event
    assert.deepEqual(await relay.drain(), []);
    for (const id of late) await scene.shows(id, { state: "BLOCKED", hold: "no" });
    const { holds } = await scene.status();
    assert.deepEqual([holds.aggregates, holds.blocked], [1, 5]);
    assert.deepEqual(
      { ...holds.list[0]!, since: null },
      { aggregateType: "Order", aggregateId: aggregates[0]!, why: "no", destination: null, causeId: cause, since: null, releasing: false },
    );

    await scene.clock.advance(12_000);
    const again = await relay.claim();
    assert.deepEqual(idsOf(again), [cause], "the failed event goes alone");
    await relay.publish(again);
    assert.deepEqual(await relay.drain({ limit: 2 }), [...followers, ...late]);
    assert.equal(await holdsOf(scene), 0);
  });

  test("a follower that was claimed before its predecessor failed waits as well", async (scene, relay) => {
    const [cause] = await scene.addTo("order-1", 1);
    const one = await relay.claim();
    const [follower] = await scene.addTo("order-1", 1);
    const two = await relay.claim();
    assert.deepEqual(idsOf(two), [follower]);
    await relay.settle(one, retry(10_000));
    const [late] = await scene.addTo("order-1", 1);
    assert.equal((await relay.claim()).id, null);
    await relay.settle(two, returned);
    assert.deepEqual(await relay.drain(), []);
    await scene.clock.advance(12_000);
    assert.deepEqual(await relay.drain(), [cause, follower, late]);
  });

  test("a failed event that is due is claimed by whoever owns its lane, and by nobody else", async (scene) => {
    const [a, b, c, d] = await scene.lanes();
    const mine = await scene.addTo(a!.aggregates[0]!, 1);
    const theirs = await scene.addTo(b!.aggregates[0]!, 1);
    const one = await scene.relay("r1", [a!.lane, c!.lane]);
    const two = await scene.relay("r2", [b!.lane, d!.lane]);
    for (const relay of [one, two]) await relay.settle(await relay.claim(), retry(10_000));
    await scene.clock.advance(12_000);
    assert.deepEqual(idsOf(await one.claim()), mine);
    assert.deepEqual(idsOf(await two.claim()), theirs);
  });

  test("thousands of followers are released in order while more arrive", async (scene) => {
    const { relay, cause, followers } = await settleFirst(scene, 2_501, retry(0));
    const expected = [...followers];
    const first = await relay.claim();
    assert.deepEqual(idsOf(first), [cause]);
    await relay.publish(first);

    const seen: string[] = [];
    for (let round = 0; round < 200; round++) {
      if (round < 20) expected.push(...(await scene.addTo("order-1", 7)));
      const window = await relay.claim({ limit: round % 2 === 0 ? 3_000 : 400 });
      const blocked = (await scene.status()).states.BLOCKED;
      if (blocked > 0) assert.equal(await holdsOf(scene), 1, "a hold stays while anything is BLOCKED behind it");
      if (window.id === null && !window.more && round >= 20) break;
      seen.push(...idsOf(window));
      if (window.id !== null) await relay.publish(window);
    }
    assert.deepEqual(seen, expected);
    assert.equal(await holdsOf(scene), 0);
  });

  test("`more` says that a release goes on", async (scene) => {
    const { relay, cause, followers } = await settleFirst(scene, 1_200, retry(0));
    await relay.publish(await relay.claim({ limit: 2_000 }));
    await scene.shows(cause, { state: "PUBLISHED" });
    const seen: string[] = [];
    for (let more = true; more;) {
      const window = await relay.claim({ limit: 5_000 });
      seen.push(...idsOf(window));
      if (window.id !== null) await relay.publish(window);
      more = window.more;
    }
    assert.deepEqual(seen, followers);
  });

  test("a failure while releasing holds the rest again", async (scene) => {
    const { relay, cause, followers } = await settleFirst(scene, 6, retry(0));
    const [one, two, failing, ...rest] = followers;
    const first = await relay.claim();
    assert.deepEqual(idsOf(first), [cause]);
    await relay.publish(first);
    const seen: string[] = [];
    while (!seen.includes(failing!)) {
      const window = await relay.claim();
      seen.push(...idsOf(window));
      if (window.id === null) assert.ok(window.more, "the release came to a halt");
      else await relay.settle(window, judgeBy(new Map([[failing!, retry(10_000)], ...rest.map((id) => [id, returned] as const)])));
    }
    assert.deepEqual(await scene.states([one!, two!]), ["PUBLISHED", "PUBLISHED"]);
    const late = await scene.addTo("order-1", 1);
    assert.deepEqual(await relay.drain(), []);
    assert.deepEqual(await scene.states([failing!, ...rest, ...late]), ["FAILED", "BLOCKED", "BLOCKED", "BLOCKED"]);
    await scene.clock.advance(12_000);
    assert.deepEqual(await relay.drain(), [failing, ...rest, ...late]);
  });

  test("a failure in the middle of a long release holds what is freed and what is not", async (scene) => {
    const { relay, followers } = await settleFirst(scene, 1_501, retry(0));
    const failing = followers[10]!;
    await relay.publish(await relay.claim({ limit: 2_000 }));
    const window = await relay.claim({ limit: 100 });
    const at = idsOf(window).indexOf(failing);
    assert.deepEqual(idsOf(window), followers.slice(0, window.claims.length));
    assert.ok(at >= 0, "the first chunk is smaller than a window");
    const behind = new Set(followers.slice(at + 1));
    const outcome = judgeBy(new Map([[failing, retry(10_000)]]));
    await relay.settle(window, (claim) => (behind.has(claim.envelope.id) ? returned : outcome)(claim));
    assert.deepEqual(await relay.drain(), []);
    const { states } = await scene.status();
    assert.deepEqual([states.FAILED, states.BLOCKED, states.PENDING], [1, followers.length - at - 1, 0]);
    await scene.clock.advance(12_000);
    assert.deepEqual(await relay.drain({ limit: 700 }), followers.slice(at));
    assert.equal(await holdsOf(scene), 0);
  });

  test("a dead event blocks its followers until an operator acts", async (scene) => {
    const { relay, cause, followers } = await settleFirst(scene, 3, parked());
    await scene.clock.advance(10_000_000);
    const late = await scene.addTo("order-1", 1);
    assert.deepEqual(await relay.drain(), []);
    assert.deepEqual(await scene.states([cause, ...followers, ...late]), ["DEAD", "BLOCKED", "BLOCKED", "BLOCKED"]);
  });

  test("with skip, followers go on at the death and not before", async (scene) => {
    const { relay, cause, followers } = await settleFirst(scene, 3, retry(5_000));
    assert.deepEqual(await relay.drain(), []);
    const late = await scene.addTo("order-1", 1);
    await scene.clock.advance(7_000);
    const last = await relay.claim();
    assert.deepEqual(idsOf(last), [cause]);
    await relay.settle(last, parked(true));
    assert.deepEqual(await relay.drain(), [...followers, ...late]);
    assert.equal((await scene.show(cause)).state, "DEAD");
    assert.equal(await holdsOf(scene), 0);
  });

  test("with skip, an event that dies at once holds nobody", async (scene, relay) => {
    const [cause, ...followers] = await scene.addTo("order-1", 3);
    await relay.settle(await relay.claim(), judgeBy(new Map([[cause!, parked(true)]]), returned));
    assert.deepEqual(await relay.drain(), followers);
    await scene.store.operator.redrive({ ids: [cause!] }, by);
    assert.deepEqual(await relay.drain(), [cause]);
  });

  test("redrive: the event first, then its followers in order", async (scene) => {
    const { relay, cause, followers } = await settleFirst(scene, 4, retry(0));
    await relay.settle(await relay.claim({ limit: 1 }), parked(false, "bad"));
    await relay.drain();
    assert.deepEqual(await scene.store.operator.redrive({ ids: [cause] }, by), { events: 1, followers: 3, ids: [cause] });
    await scene.shows(cause, { state: "PENDING", retryCount: 0, lastError: "bad" });
    const { nextAttemptAt } = await scene.show(cause);
    if (nextAttemptAt !== null) near(nextAttemptAt, scene.clock.now()); // a store may tell when it came back
    const late = await scene.addTo("order-1", 1);
    const first = await relay.claim();
    assert.deepEqual(idsOf(first), [cause]);
    assert.equal(first.claims[0]!.failures, 0);
    const later = await scene.addTo("order-1", 1);
    assert.equal((await relay.claim()).id, null);
    await relay.publish(first);
    assert.deepEqual(await relay.drain({ limit: 2 }), [...followers, ...late, ...later]);
    assert.equal(await holdsOf(scene), 0);
  });

  test("a redriven event that fails again still holds its followers", async (scene) => {
    const { relay, cause, followers } = await settleFirst(scene, 2, parked());
    await relay.drain();
    await scene.store.operator.redrive({}, by);
    await relay.settle(await relay.claim(), retry(5_000));
    assert.deepEqual(await relay.drain(), []);
    assert.deepEqual(await scene.states([cause, ...followers]), ["FAILED", "BLOCKED"]);
    await scene.clock.advance(7_000);
    assert.deepEqual(await relay.drain(), [cause, ...followers]);
  });

  test("discard: followers are released in order", async (scene) => {
    const { relay, cause, followers } = await settleFirst(scene, 4, parked(false, "bad"));
    await relay.drain();
    assert.deepEqual(await scene.store.operator.discard({ ids: [cause] }, by), { events: 1, followers: 3, ids: [cause] });
    const late = await scene.addTo("order-1", 1);
    assert.deepEqual(await relay.drain({ limit: 2 }), [...followers, ...late]);
    await scene.shows(cause, { state: "DISCARDED", lastError: "bad" });
    assert.equal(await holdsOf(scene), 0);
  });

  test("a letter that was passed over by skip waits for a later hold when it is redriven", async (scene) => {
    const { relay, cause, followers } = await settleFirst(scene, 2, parked(true));
    await relay.settle(await relay.claim(), retry(5_000));
    await scene.store.operator.redrive({ ids: [cause] }, by);
    assert.deepEqual(await relay.drain(), []);
    await scene.clock.advance(7_000);
    assert.deepEqual(await relay.drain(), [...followers, cause]);
    assert.equal(await holdsOf(scene), 0);
  });

  test("a hold outlives its relay", async (scene) => {
    const { relay, cause, followers } = await settleFirst(scene, 3, retry(5_000));
    await relay.drain();
    const heir = await scene.heir("heir");
    const late = await scene.addTo("order-1", 1);
    assert.deepEqual(await heir.drain(), [cause, ...followers, ...late]);
  });

  test("a release outlives its relay", async (scene) => {
    const { relay, followers } = await settleFirst(scene, 1_500, retry(0));
    await relay.publish(await relay.claim({ limit: 2_000 }));
    assert.deepEqual(await (await scene.heir("heir")).drain(), followers);
  });

  test("a lower seq that becomes due behind a hold is released before the higher ones", async (scene) => {
    const delayed = scene.row("order-1", { availableAt: new Date(scene.clock.now() + 5_000) });
    await scene.add(delayed);
    const { relay, cause, followers } = await settleFirst(scene, 2, retry(20_000));
    assert.deepEqual(await relay.drain(), []);
    await scene.clock.advance(10_000);
    assert.deepEqual(await relay.drain(), []);
    await scene.clock.advance(15_000);
    assert.deepEqual(await relay.drain(), [cause, delayed.id, ...followers]);
  });
}
