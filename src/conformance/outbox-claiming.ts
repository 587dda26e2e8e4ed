import assert from "node:assert/strict";
import type { StoreSuite } from "./harness.ts";
import { cases, ids, idsOf, inOrder, ttlMs } from "./scene.ts";

export function claimingCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "claiming");

  test("an aggregate's events come in the order they were added, over many windows", async (scene, relay) => {
    const expected = new Map<string, string[]>();
    for (let round = 0; round < 6; round++) {
      const rows = Array.from({ length: 27 }, (_, n) => scene.row(`order-${n % 9}`));
      await scene.add(...rows);
      for (const { aggregateId, id } of rows) expected.set(aggregateId, [...(expected.get(aggregateId) ?? []), id]);
    }
    const seen = new Map<string, string[]>();
    for await (const window of relay.windows({ limit: 17 })) {
      assert.ok(window.claims.length <= 17);
      for (const [at, { envelope }] of window.claims.entries()) {
        if (at > 0) assert.ok(window.claims[at - 1]!.envelope.seq < envelope.seq, "claims are sorted by seq");
        seen.set(envelope.aggregateId, [...(seen.get(envelope.aggregateId) ?? []), envelope.id]);
      }
    }
    assert.deepEqual([...seen].sort(), [...expected].sort());
  });

  test("the limit is kept, and `more` says that it cut", async (scene, relay) => {
    await scene.addEach(Array.from({ length: 30 }, (_, n) => `order-${n}`));
    const cut = await relay.claim({ limit: 10 });
    assert.ok(cut.claims.length > 0 && cut.claims.length <= 10);
    assert.equal(cut.more, true);
    const rest = await relay.claim({ limit: 100 });
    assert.equal(cut.claims.length + rest.claims.length, 30);
    assert.equal(rest.more, false);
    assert.deepEqual(await relay.claim(), { id: null, claims: [], suspects: 0, destinations: [], more: false });
  });

  test("every lane gets its share, and one that is behind gets more", async (scene, relay) => {
    const [deep, ...others] = (await scene.lanes()).slice(0, 11);
    const many = Array.from({ length: 400 }, (_, n) => scene.row(deep!.aggregates[n % 2]!));
    await scene.add(...many, ...others.flatMap(({ aggregates }) => [0, 1, 2, 3].map(() => scene.row(aggregates[0]!))));
    const { claims, more } = await relay.claim({ limit: 100 });
    const counts = new Map<number, number>();
    for (const { lane } of claims) counts.set(lane, (counts.get(lane) ?? 0) + 1);
    for (const { lane } of others) assert.ok((counts.get(lane) ?? 0) > 0, `lane ${lane} got nothing`);
    assert.ok(counts.get(deep!.lane)! >= 50, `the lane that is behind got ${counts.get(deep!.lane)} of 100`);
    assert.ok(claims.length <= 100);
    assert.equal(more, true);
  });

  test("a small limit starves no lane", async (scene) => {
    const [first, ...rest] = (await scene.lanes()).slice(0, 8);
    const busy = rest.slice(0, 5);
    const quiet = [first!, ...rest.slice(5)];
    const refill = (): Promise<unknown> => scene.addEach(busy.flatMap(({ aggregates: [name] }) => [name!, name!, name!]));
    await refill();
    const waiting = new Set(await scene.addEach(quiet.map(({ aggregates }) => aggregates[0]!)));
    const relay = await scene.relay("r1");
    for (let round = 0; round < 20 && waiting.size > 0; round++) {
      await refill();
      const window = await relay.claim({ limit: 4 });
      for (const id of idsOf(window)) waiting.delete(id);
      await relay.publish(window);
    }
    assert.equal(waiting.size, 0, `${waiting.size} lanes were passed over 20 times`);
  });

  test("an aggregate that never has nothing to do starves no other of its lane", async (scene) => {
    const [busy, quiet] = (await scene.lanes())[0]!.aggregates;
    await scene.addTo(busy!, 20);
    const [waiting] = await scene.addTo(quiet!, 1);
    const relay = await scene.relay("r1");
    const later = new Set<string>();
    for (;;) {
      for (const id of await scene.addTo(busy!, 6)) later.add(id);
      const window = await relay.claim({ limit: 4 });
      const ids = idsOf(window);
      const at = ids.indexOf(waiting!);
      assert.ok(!ids.slice(0, at === -1 ? undefined : at).some((id) => later.has(id)), "what came later went first");
      if (at !== -1) return;
      await relay.publish(window);
    }
  });

  test("what is in an open window is left out; what comes after it may be claimed", async (scene, relay) => {
    const first = await scene.addTo("order-1", 2);
    const one = await relay.claim();
    assert.deepEqual(idsOf(one), first);
    const second = await scene.addTo("order-1", 1);
    const two = await relay.claim();
    assert.deepEqual(idsOf(two), second);
    assert.notEqual(one.id, two.id);
    assert.equal((await relay.claim()).id, null);
    await relay.publish(one);
    await relay.publish(two);
    assert.equal((await relay.claim()).id, null);
  });

  test("a window that the relay does not name any more is forgotten", async (scene, relay) => {
    const ids = await scene.addTo("order-1", 3);
    const lost = await relay.claim();
    const again = await relay.claim({ open: [] });
    assert.deepEqual(idsOf(again), ids);
    assert.equal(again.suspects, 0);
    assert.deepEqual(await relay.publish(lost), { settled: 0, lost: [] });
    assert.ok((await scene.states(ids)).every((state) => state === "PUBLISHING"));
    assert.equal((await relay.publish(again)).settled, 3);
  });

  test("only lanes that the relay owns under this epoch are claimed", async (scene) => {
    const [a, b] = await scene.lanes();
    const mine = await scene.addTo(a!.aggregates[0]!, 2);
    const theirs = await scene.addTo(b!.aggregates[0]!, 2);
    const one = await scene.relay("r1", [a!.lane]);
    const two = await scene.relay("r2", [b!.lane]);
    const greedy = { relay: "r1", lanes: new Map([...(await one.holding()).lanes, ...(await two.holding()).lanes]) };
    const request = { limit: 100, open: [], narrow: false };
    assert.deepEqual(idsOf(await scene.store.outbox.claim(greedy, request)), mine);
    const stale = { relay: "r2", lanes: new Map([[b!.lane, (await two.holding()).lanes.get(b!.lane)! - 1n]]) };
    assert.equal((await scene.store.outbox.claim(stale, request)).id, null);
    const nobody = { relay: "r3", lanes: (await two.holding()).lanes };
    assert.equal((await scene.store.outbox.claim(nobody, request)).id, null);
    assert.deepEqual(idsOf(await two.claim()), theirs);
  });

  test("a lease that has lapsed but was not taken still claims", async (scene) => {
    const ids = await scene.addTo("order-1", 1);
    const relay = await scene.relay("r1");
    await scene.clock.advance(ttlMs * 2);
    assert.deepEqual(idsOf(await relay.claim()), ids);
  });

  test("a delayed event waits for its moment and holds nobody back", async (scene, relay) => {
    const { clock } = scene;
    const later = scene.row("order-1", { availableAt: new Date(clock.now() + 60_000) });
    const past = scene.row("order-2", { availableAt: new Date(clock.now() - 10_000) });
    await scene.add(later, past);
    const [follower] = await scene.addTo("order-1", 1);
    assert.deepEqual(await relay.drain(), [past.id, follower]);
    await clock.advance(40_000);
    assert.deepEqual(await relay.drain(), []);
    await clock.advance(22_000);
    assert.deepEqual(await relay.drain(), [later.id]);
  });

  test("a delayed event that is due overtakes no earlier one, however small the windows", async (scene, relay) => {
    const [own, other] = (await scene.lanes())[0]!.aggregates as [string, string];
    const later = { availableAt: new Date(scene.clock.now() + 1_000) };
    const rows = [scene.row(own), scene.row(own, later)];
    await scene.add(...Array.from({ length: 9 }, () => scene.row(other)), ...rows);
    await scene.clock.advance(5_000);
    const seen = await relay.drain({ limit: 2 });
    assert.equal(seen.length, 11);
    inOrder(seen, ids(rows));
  });

  test("many delayed events that become due at once keep no other lane waiting", async (scene, relay) => {
    const [crowded, other] = (await scene.lanes()).map(({ aggregates }) => aggregates[0]!) as [string, string];
    const later = { availableAt: new Date(scene.clock.now() + 40_000) };
    for (let n = 0; n < 21; n++) await scene.add(...Array.from({ length: 500 }, () => scene.row(crowded, later)));
    assert.deepEqual(await relay.drain(), []);
    await scene.clock.advance(42_000);
    const [behind] = await scene.addTo(crowded, 1);
    const [healthy] = await scene.addTo(other, 1);
    const first = await relay.claim({ limit: 50 });
    assert.ok(idsOf(first).includes(healthy!));
    assert.ok(!idsOf(first).includes(behind!), "it was added behind those that are due");
    await relay.publish(first);
    const rest = await relay.drain({ limit: 5_000 });
    assert.equal(first.claims.length + rest.length, 10_502);
    assert.equal(rest.at(-1), behind);
  });

  test("a delayed event that is due is overtaken by no later one, however small the windows", async (scene, relay) => {
    const [own, other] = (await scene.lanes())[0]!.aggregates as [string, string];
    const at = (seconds: number): { availableAt: Date } => ({ availableAt: new Date(scene.clock.now() + seconds * 1_000) });
    const due = scene.row(own, at(3));
    await scene.add(...Array.from({ length: 9 }, () => scene.row(other, at(1))), due);
    await scene.clock.advance(6_000);
    const [late] = await scene.addTo(own, 1);
    const seen = await relay.drain({ limit: 2 });
    assert.equal(seen.length, 11);
    assert.ok(seen.indexOf(due.id) < seen.indexOf(late!));
  });

  test.needing("parallelWriters")(
    "an event that is available when it is added goes before later ones, while relays claim",
    async (scene) => {
      const relay = await scene.relay("r1");
      const past = { availableAt: new Date(scene.clock.now() - 60_000) };
      const added: string[][] = [];
      let writing = true;
      const write = async (aggregate: string): Promise<void> => {
        const own: string[] = [];
        added.push(own);
        for (let n = 0; n < 60; n++) own.push(...ids(await scene.add(scene.row(aggregate, n % 2 === 0 ? past : {}))));
      };
      const work = Promise.all(["order-1", "order-2", "order-3", "order-4"].map(write)).finally(() => (writing = false));
      const seen: string[] = [];
      while (writing) seen.push(...(await relay.drain()));
      await work;
      seen.push(...(await relay.drain()));
      for (const own of added) inOrder(seen, own);
    },
  );

  test("a claimed window is on record before anything is sent", async (scene, relay) => {
    const [first] = await scene.addTo("order-1", 3);
    const window = await relay.claim();
    const status = await scene.status();
    assert.equal(status.window.events, 3);
    assert.equal(status.states.PUBLISHING, 3);
    assert.equal(status.relays.find(({ relay: name }) => name === "r1")?.window, 3);
    await scene.shows(first!, { state: "PUBLISHING", owner: "r1" });
    await relay.publish(window);
    assert.equal((await scene.status()).window.events, 0);
  });

  test("nothing is PUBLISHING under a lease that has run out", async (scene, relay) => {
    const ids = await scene.addTo("order-1", 2);
    await relay.claim();
    await scene.clock.advance(ttlMs + 2_000);
    assert.deepEqual(await scene.states(ids), ["PENDING", "PENDING"]);
    const { states } = await scene.status();
    assert.deepEqual([states.PENDING, states.PUBLISHING], [2, 0]);
  });

  test("a lane that is won with an old backlog keeps its order while newer rows arrive", async (scene, one) => {
    const expected = await scene.addTo("order-1", 40);
    const seen = idsOf(await one.claim({ limit: 5 }));
    await one.publish(await one.claim({ limit: 5, open: [] }));
    await scene.store.leases.leave("r1");
    expected.push(...(await scene.addTo("order-1", 3)));
    const two = await scene.relay("r2");
    for (let round = 0; round < 5; round++) {
      expected.push(...(await scene.addTo("order-1", 2)));
      const window = await two.claim({ limit: 7 });
      seen.push(...idsOf(window));
      await two.publish(window);
    }
    assert.deepEqual([...seen, ...(await two.drain({ limit: 9 }))], expected);
  });

  test("two relays share the work and nothing is claimed twice", async (scene) => {
    const all = (await scene.store.leases.look()).lanes.map(({ lane }) => lane);
    const ids = await scene.addEach(Array.from({ length: 200 }, (_, n) => `order-${n % 50}`));
    const one = await scene.relay("r1", all.slice(0, 40));
    const two = await scene.relay("r2");
    assert.equal((await one.holding()).lanes.size, 40);
    assert.equal((await two.holding()).lanes.size, all.length - 40);
    const [a, b] = await Promise.all([one.drain({ limit: 16 }), two.drain({ limit: 16 })]);
    assert.ok(a.length > 0 && b.length > 0);
    assert.deepEqual([...a, ...b].sort(), ids.sort());
  });

  test.needing("claimBesideWriter")("rows of an open transaction are not seen, and are claimed once it has committed", async (scene) => {
    const relay = await scene.relay("r1");
    const open = await scene.begin();
    const row = scene.row("order-1");
    await scene.store.writer.append(open.tx, [row]);
    assert.equal((await relay.claim()).id, null);
    assert.equal(await scene.store.operator.show(row.id), null);
    await open.commit();
    assert.deepEqual(await relay.drain(), [row.id]);
  });

  test.needing("parallelWriters")("a row that commits late, below rows that are published, is not lost", async (scene) => {
    const relay = await scene.relay("r1");
    const [late, rolledBack] = [await scene.begin(), await scene.begin()];
    const row = scene.row("order-1");
    await scene.store.writer.append(late.tx, [row]);
    await scene.store.writer.append(rolledBack.tx, [scene.row("order-2")]);
    const others = await scene.addTo("order-3", 3);
    assert.deepEqual(await relay.drain(), others);
    await rolledBack.rollback();
    await late.commit();
    assert.deepEqual(await relay.drain(), [row.id]);
  });
}
