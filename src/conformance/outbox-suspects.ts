import assert from "node:assert/strict";
import type { StoreSuite } from "./harness.ts";
import { by, cases, heldFor, idsOf, parked, retry, returned, ttlMs, type SceneRelay, type Scene } from "./scene.ts";

/** One event that was alone in the window of a relay that died, and the relay that took over. */
async function died<Db, Tx>(scene: Scene<Db, Tx>): Promise<{ readonly id: string; readonly heir: SceneRelay }> {
  const [id] = await scene.addTo("order-1", 1);
  await (await scene.relay("r1")).claim();
  return { id: id!, heir: await scene.heir("r2") };
}

export function suspectCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "suspects");

  test("what a dead relay had in its window is suspect; its followers wait, others go on", async (scene) => {
    const dying = await scene.relay("r1");
    const suspects = await scene.addTo("order-1", 3);
    await dying.claim();
    const heir = await scene.heir("r2");
    const followers = await scene.addTo("order-1", 2);
    const others = await scene.addTo("order-2", 2);
    const window = await heir.claim();
    assert.deepEqual(idsOf(window), others);
    assert.equal(window.suspects, 3);
    await heir.publish(window);
    assert.equal((await scene.status()).window.suspects, 3);
    assert.deepEqual(await heir.drain({ narrow: true }), suspects);
    const after = await heir.claim();
    assert.equal(after.suspects, 0);
    assert.deepEqual(idsOf(after), followers);
    assert.equal((await scene.status()).window.suspects, 0);
  });

  test("nothing is suspect after lanes were given back, or the relay has left", async (scene, one) => {
    const all = (await scene.store.leases.look()).lanes.map(({ lane }) => lane);
    const ids = await scene.addTo("order-1", 2);
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
    const heir = await scene.heir("r2");
    assert.equal((await heir.claim()).suspects, 1);
    assert.deepEqual(await heir.drain({ narrow: true }), open);
  });

  test("a narrow claim takes a tenth of the window that died", async (scene, dying) => {
    const names = (await scene.lanes()).slice(0, 2).flatMap(({ aggregates }) => aggregates.slice(0, 2));
    const ids = await scene.addEach(Array.from({ length: 60 }, (_, n) => names[n] ?? `other-${n}`));
    assert.equal((await dying.claim()).claims.length, 60);
    const heir = await scene.heir("r2");
    const tenth = await heir.claim({ narrow: true });
    assert.deepEqual(idsOf(tenth), ids.slice(0, 6));
    assert.ok(tenth.claims.every(({ deaths }) => deaths === 0));
    const third = await scene.heir("r3");
    const one = await third.claim({ narrow: true });
    assert.deepEqual(idsOf(one), [ids[0]], "the window that it died in last decides");
    assert.equal(one.claims[0]!.deaths, 0);
    await third.publish(one);
    assert.deepEqual(await third.drain({ narrow: true }), ids.slice(1));
  });

  test("a suspect goes with few others when it was in a small window itself, and not because of others behind it", async (scene, dying) => {
    const many = await scene.addEach(Array.from({ length: 40 }, (_, n) => `many-${n}`));
    await dying.claim();
    const second = await scene.heir("r2");
    const few = await scene.addEach(["few-1", "few-2"]);
    assert.deepEqual(idsOf(await second.claim()), few);
    const heir = await scene.heir("r3");
    const widths: number[] = [];
    const seen: string[] = [];
    for await (const window of heir.windows({ narrow: true })) {
      widths.push(window.claims.length);
      seen.push(...idsOf(window));
    }
    assert.deepEqual(widths, [...Array<number>(10).fill(4), 1, 1]);
    assert.deepEqual(seen, [...many, ...few]);
  });

  test("a narrow claim keeps to the limit, and takes nothing when nothing is suspect", async (scene, dying) => {
    await scene.addEach(Array.from({ length: 60 }, (_, n) => `order-${n}`));
    assert.equal((await dying.claim({ narrow: true })).id, null);
    await dying.claim();
    const heir = await scene.heir("r2");
    assert.equal((await heir.claim({ narrow: true, limit: 2 })).claims.length, 2);
  });

  test("a narrow claim that meets only what comes before a suspect is bounded by its limit alone", async (scene, dying) => {
    const earlier = await scene.addTo("order-1", 3);
    const one = await dying.claim();
    const [suspect] = await scene.addTo("order-1", 1);
    await dying.claim();
    await dying.settle(one, returned);
    const heir = await scene.heir("r2");
    const first = await heir.claim({ narrow: true });
    assert.deepEqual(idsOf(first), earlier);
    assert.deepEqual(idsOf(await heir.claim({ narrow: true })), [suspect], "the suspect itself goes alone");
    await heir.settle(first, returned);
    assert.deepEqual(idsOf(await heir.claim({ narrow: true, limit: 2 })), earlier.slice(0, 2));
  });

  test("deaths are counted in windows of one, and only there", async (scene) => {
    const [poison] = await scene.addEach(["order-1", "order-2"]);
    assert.equal((await (await scene.relay("r0")).claim()).claims.length, 2);
    for (const deaths of [0, 1, 2, 3]) {
      const window = await (await scene.heir(`r${deaths + 1}`)).claim({ narrow: true });
      assert.deepEqual(idsOf(window), [poison]);
      assert.equal(window.claims[0]!.deaths, deaths);
      assert.equal(window.suspects, 1, "what was claimed now does not wait any more");
    }
  });

  test("a first death alone in its window counts", async (scene) => {
    const { id, heir } = await died(scene);
    const window = await heir.claim({ narrow: true });
    assert.deepEqual([idsOf(window), window.claims[0]!.deaths], [[id], 1]);
  });

  for (const [name, judge] of [
    ["retry", retry(0)],
    ["parked", parked()],
  ] as const) {
    test(`deaths start anew once the event was settled as ${name}`, async (scene) => {
      const { heir } = await died(scene);
      await heir.settle(await heir.claim({ narrow: true }), judge);
      await scene.store.operator.redrive({}, by);
      const again = await heir.claim();
      assert.deepEqual([again.suspects, again.claims[0]?.deaths], [0, 0]);
      const third = await scene.heir("r3");
      assert.equal((await third.claim({ narrow: true })).claims[0]?.deaths, 1);
    });
  }

  test("an event that was returned is still suspect", async (scene) => {
    const { id, heir } = await died(scene);
    await heir.settle(await heir.claim({ narrow: true }), returned);
    const normal = await heir.claim();
    assert.deepEqual([normal.id, normal.suspects], [null, 1]);
    const again = await heir.claim({ narrow: true });
    assert.deepEqual([idsOf(again), again.claims[0]!.deaths], [[id], 1]);
  });

  test("a suspect that waits for a destination is not counted, and is suspect again afterwards", async (scene) => {
    const { id, heir } = await died(scene);
    await heir.settle(await heir.claim({ narrow: true }), heldFor("t"));
    const waiting = await heir.claim({ narrow: true });
    assert.deepEqual([waiting.id, waiting.suspects], [null, 0]);
    await heir.release("t", 1);
    const normal = await heir.claim();
    assert.deepEqual([normal.id, normal.suspects], [null, 1]);
    assert.deepEqual(await heir.drain({ narrow: true }), [id]);
  });

  test("a suspect that failed is tried when it is due", async (scene, dying) => {
    const [id] = await scene.addTo("order-1", 1);
    await dying.settle(await dying.claim(), retry(0));
    await dying.claim();
    const heir = await scene.heir("r2");
    const window = await heir.claim({ narrow: true });
    assert.deepEqual([idsOf(window), window.claims[0]!.failures, window.claims[0]!.deaths], [[id], 1, 1]);
    await heir.settle(window, retry(ttlMs * 3));
    const again = await heir.claim();
    assert.deepEqual([again.id, again.suspects], [null, 0]);
  });

  test("a suspect does not overtake an earlier event of its aggregate", async (scene, dying) => {
    const [earlier] = await scene.addTo("order-1", 1);
    const one = await dying.claim();
    const [suspect] = await scene.addTo("order-1", 1);
    await dying.claim();
    await dying.settle(one, returned);
    const heir = await scene.heir("r2");
    const seen: string[] = [];
    for (const narrow of [true, false, true, false, true, false]) {
      const window = await heir.claim({ narrow });
      seen.push(...idsOf(window));
      if (window.id !== null) await heir.publish(window);
    }
    assert.deepEqual(seen, [earlier, suspect]);
  });
}
