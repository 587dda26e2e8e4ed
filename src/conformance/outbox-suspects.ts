import assert from "node:assert/strict";
import type { StoreSuite } from "./harness.ts";
import { cases, heldFor, idsOf, judgeBy, parked, retry, returned, ttlMs, type Relay, type Scene } from "./scene.ts";

/** The owner dies with whatever it has claimed, and another takes all its lanes. */
async function takeOver<Db, Tx>(scene: Scene<Db, Tx>, heir: string): Promise<Relay> {
  await scene.clock.advance(ttlMs + 2_000);
  return scene.relay(heir);
}

export function suspectCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "suspects");

  test("what a dead relay had in its window is suspect; its followers wait, others go on", async (scene) => {
    const dying = await scene.relay("r1");
    const suspects = await scene.addTo("order-1", 3);
    await dying.claim();
    const heir = await takeOver(scene, "r2");
    const followers = await scene.addTo("order-1", 2);
    const others = await scene.addTo("order-2", 2);
    const window = await heir.claim();
    assert.deepEqual(idsOf(window), others);
    assert.equal(window.suspects, 3);
    await heir.publish(window);
    assert.equal((await scene.store.operator.status()).window.suspects, 3);
    assert.deepEqual(await heir.drain({ narrow: true }), suspects);
    const after = await heir.claim();
    assert.equal(after.suspects, 0);
    assert.deepEqual(idsOf(after), followers);
    assert.equal((await scene.store.operator.status()).window.suspects, 0);
  });

  test("nothing is suspect after lanes were given back, or the relay has left", async (scene) => {
    const all = (await scene.store.leases.look()).lanes.map(({ lane }) => lane);
    const ids = await scene.addTo("order-1", 2);
    const one = await scene.relay("r1");
    await one.claim();
    await scene.store.leases.give("r1", all);
    const two = await scene.relay("r2");
    const window = await two.claim();
    assert.deepEqual([window.suspects, idsOf(window)], [0, ids]);
    await scene.store.leases.leave("r2");
    const three = await scene.relay("r3");
    const again = await three.claim();
    assert.deepEqual([again.suspects, idsOf(again)], [0, ids]);
    assert.equal((await three.publish(again)).settled, 2);
  });

  test("what was settled before the death is no suspect", async (scene) => {
    const dying = await scene.relay("r1");
    await scene.addTo("order-1", 2);
    await dying.publish(await dying.claim());
    const open = await scene.addTo("order-1", 1);
    await dying.claim();
    const heir = await takeOver(scene, "r2");
    assert.equal((await heir.claim()).suspects, 1);
    assert.deepEqual(await heir.drain({ narrow: true }), open);
  });

  test("a narrow claim takes a tenth of the window that died", async (scene) => {
    const names = (await scene.lanes()).slice(0, 2).flatMap(({ aggregates }) => aggregates.slice(0, 2));
    const rows = Array.from({ length: 60 }, (_, n) => scene.row(names[n] ?? `other-${n}`));
    await scene.add(...rows);
    const dying = await scene.relay("r1");
    assert.equal((await dying.claim()).claims.length, 60);
    const heir = await takeOver(scene, "r2");
    const tenth = await heir.claim({ narrow: true });
    assert.deepEqual(
      idsOf(tenth),
      rows.slice(0, 6).map(({ id }) => id),
    );
    assert.ok(tenth.claims.every(({ deaths }) => deaths === 0));
    const third = await takeOver(scene, "r3");
    const one = await third.claim({ narrow: true });
    assert.deepEqual(idsOf(one), [rows[0]!.id], "the smallest of the windows that died decides");
    assert.equal(one.claims[0]!.deaths, 0);
    await third.publish(one);
    assert.deepEqual(
      await third.drain({ narrow: true }),
      rows.slice(1).map(({ id }) => id),
    );
  });

  test("a narrow claim keeps to the limit, and takes nothing when nothing is suspect", async (scene) => {
    await scene.add(...Array.from({ length: 60 }, (_, n) => scene.row(`order-${n}`)));
    const dying = await scene.relay("r1");
    assert.equal((await dying.claim({ narrow: true })).id, null);
    await dying.claim();
    const heir = await takeOver(scene, "r2");
    assert.equal((await heir.claim({ narrow: true, limit: 2 })).claims.length, 2);
  });

  test("deaths are counted in windows of one, and only there", async (scene) => {
    const [poison] = await scene.addTo("order-1", 1);
    await scene.addTo("order-2", 1);
    const first = await scene.relay("r0");
    assert.equal((await first.claim()).claims.length, 2);
    for (const deaths of [0, 1, 2, 3]) {
      const relay = await takeOver(scene, `r${deaths + 1}`);
      const { claims, suspects } = await relay.claim({ narrow: true });
      assert.deepEqual(
        claims.map(({ envelope }) => envelope.id),
        [poison],
      );
      assert.equal(claims[0]!.deaths, deaths);
      assert.equal(suspects, 1, "what was claimed now does not wait any more");
    }
  });

  test("a first death alone in its window counts", async (scene) => {
    const [id] = await scene.addTo("order-1", 1);
    const dying = await scene.relay("r1");
    await dying.claim();
    const heir = await takeOver(scene, "r2");
    const window = await heir.claim({ narrow: true });
    assert.deepEqual([idsOf(window), window.claims[0]!.deaths], [[id], 1]);
  });

  for (const [name, judge] of [
    ["retry", retry(0)],
    ["parked", parked()],
  ] as const) {
    test(`deaths start anew once the event was settled as ${name}`, async (scene) => {
      await scene.addTo("order-1", 1);
      await (await scene.relay("r1")).claim();
      const heir = await takeOver(scene, "r2");
      await heir.settle(await heir.claim({ narrow: true }), judge);
      await scene.store.operator.redrive({}, { who: "ada", dryRun: false });
      const again = await heir.claim();
      assert.deepEqual([again.suspects, again.claims[0]?.deaths], [0, 0]);
      const third = await takeOver(scene, "r3");
      assert.equal((await third.claim({ narrow: true })).claims[0]?.deaths, 1);
    });
  }

  test("an event that was returned is still suspect", async (scene) => {
    const [id] = await scene.addTo("order-1", 1);
    await (await scene.relay("r1")).claim();
    const heir = await takeOver(scene, "r2");
    await heir.settle(await heir.claim({ narrow: true }), returned);
    const normal = await heir.claim();
    assert.deepEqual([normal.id, normal.suspects], [null, 1]);
    const again = await heir.claim({ narrow: true });
    assert.deepEqual([idsOf(again), again.claims[0]!.deaths], [[id], 1]);
  });

  test("a suspect that waits for a destination is not counted, and is suspect again afterwards", async (scene) => {
    const [id] = await scene.addTo("order-1", 1);
    await (await scene.relay("r1")).claim();
    const heir = await takeOver(scene, "r2");
    await heir.settle(await heir.claim({ narrow: true }), heldFor("t"));
    const waiting = await heir.claim({ narrow: true });
    assert.deepEqual([waiting.id, waiting.suspects], [null, 0]);
    await scene.store.outbox.release(heir.holding, "t", 1);
    const normal = await heir.claim();
    assert.deepEqual([normal.id, normal.suspects], [null, 1]);
    assert.deepEqual(await heir.drain({ narrow: true }), [id]);
  });

  test("a suspect that failed is tried when it is due", async (scene) => {
    const [id] = await scene.addTo("order-1", 1);
    const dying = await scene.relay("r1");
    await dying.settle(await dying.claim(), retry(0));
    await dying.claim();
    const heir = await takeOver(scene, "r2");
    const window = await heir.claim({ narrow: true });
    assert.deepEqual([idsOf(window), window.claims[0]!.failures, window.claims[0]!.deaths], [[id], 1, 1]);
    await heir.settle(window, retry(ttlMs * 3));
    const again = await heir.claim();
    assert.deepEqual([again.id, again.suspects], [null, 0]);
  });

  test("a suspect does not overtake an earlier event of its aggregate", async (scene) => {
    const [earlier] = await scene.addTo("order-1", 1);
    const dying = await scene.relay("r1");
    const one = await dying.claim();
    const [suspect] = await scene.addTo("order-1", 1);
    await dying.claim();
    await dying.settle(one, returned);
    const heir = await takeOver(scene, "r2");
    const seen: string[] = [];
    for (const narrow of [true, false, true, false, true, false]) {
      const window = await heir.claim({ narrow });
      seen.push(...idsOf(window));
      if (window.id !== null) await heir.publish(window);
    }
    assert.deepEqual(seen, [earlier, suspect]);
  });

  test("only the lanes that were taken over have suspects", async (scene) => {
    const [a, b] = await scene.lanes();
    const left = await scene.addTo(a!.aggregates[0]!, 2);
    const kept = await scene.addTo(b!.aggregates[0]!, 2);
    const slow = await scene.relay("slow", [a!.lane, b!.lane]);
    const window = await slow.claim();
    await scene.clock.advance(ttlMs + 2_000);
    const heir = await scene.relay("heir", [a!.lane]);
    assert.equal((await heir.claim()).suspects, 2);
    assert.equal((await slow.settle(window, judgeBy(new Map()))).settled, 2);
    assert.deepEqual(await scene.states(kept), ["PUBLISHED", "PUBLISHED"]);
    assert.deepEqual(await heir.drain({ narrow: true }), left);
  });
}
