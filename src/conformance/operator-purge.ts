import assert from "node:assert/strict";
import type { EventRecord } from "../contracts/operator.ts";
import { turn } from "../core/clock.ts";
import type { StoreSuite } from "./harness.ts";
import { by, cases, ids, type Scene } from "./scene.ts";

const events = 1_200;

/** That many published events, and one that is not. */
async function published<Db, Tx>(scene: Scene<Db, Tx>): Promise<{ purged: string[]; kept: string[]; later: Date }> {
  const relay = await scene.relay("r1");
  const purged = await scene.addEach(Array.from({ length: events }, (_, n) => `order-${n % 50}`));
  assert.equal((await relay.drain()).length, events);
  return { purged: purged.sort(), kept: await scene.addTo("kept", 1), later: new Date(scene.clock.now() + 60_000) };
}

async function stored<Db, Tx>({ store }: Scene<Db, Tx>): Promise<string[]> {
  return ids(await store.operator.list({ limit: 100_000 })).sort();
}

export function purgeCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "operator");

  test("purge of more than one batch", async (scene) => {
    const relay = await scene.relay("r1");
    for (let n = 0; n < 3; n++) await scene.addEach(Array.from({ length: 4_000 }, (_, i) => `order-${i % 100}`));
    assert.equal((await relay.drain({ limit: 4_000 })).length, 12_000);
    const kept = await scene.addTo("kept", 1);
    assert.equal(await scene.store.operator.purge(new Date(scene.clock.now() + 60_000), by), 12_000);
    assert.deepEqual(await stored(scene), kept);
  });

  test("purge gives whole events to the archive, a batch at a time, and deletes them after that", async (scene) => {
    const { purged, kept, later } = await published(scene);
    const archived: EventRecord[] = [];
    let pauses = 0;
    const count = await scene.store.operator.purge(later, by, {
      async archive(records) {
        const there = new Set(await stored(scene));
        assert.ok(records.length < events, "a batch is not everything");
        for (const { id } of records) assert.ok(there.has(id), `${id} was deleted before it was archived`);
        archived.push(...records);
      },
      pause: async () => void pauses++,
    });
    assert.equal(count, events);
    assert.deepEqual(ids(archived).sort(), purged);
    assert.deepEqual(await stored(scene), kept);
    assert.ok(pauses > 0 && pauses < 10, `${pauses} pauses`);
    const { seq, payload, state, publishedAt, headers, aggregateType } = archived[0]!;
    assert.deepEqual([typeof seq, typeof payload, state, aggregateType, { ...headers }], ["bigint", "string", "PUBLISHED", "Order", {}]);
    assert.ok(publishedAt instanceof Date);
    assert.deepEqual(await scene.audit(), [{ who: "ada", action: "purge", events }]);
  });

  test("an archive that fails keeps its batch, and purge tells why", async (scene) => {
    const { purged, kept, later } = await published(scene);
    const archived: EventRecord[] = [];
    let calls = 0;
    const archive = async (records: readonly EventRecord[]): Promise<void> => {
      if (++calls === 2) throw new Error("the archive is full");
      archived.push(...records);
    };
    await assert.rejects(scene.store.operator.purge(later, by, { archive }), /the archive is full/);
    assert.equal(calls, 2);
    assert.deepEqual(await stored(scene), [...kept, ...purged.filter((id) => !ids(archived).includes(id))].sort());
    assert.deepEqual(await scene.audit(), [{ who: "ada", action: "purge", events: archived.length }]);
    assert.equal(await scene.store.operator.purge(later, by, { archive }), events - (await scene.audit())[0]!.events);
    assert.deepEqual(ids(archived).sort(), purged);
    assert.deepEqual(await stored(scene), kept);
  });

  test("an archive that throws before it returns is one that fails", async (scene) => {
    const { later } = await published(scene);
    const archive = (): Promise<void> => {
      throw new Error("no archive");
    };
    await assert.rejects(scene.store.operator.purge(later, by, { archive }), /no archive/);
    assert.equal((await stored(scene)).length, events + 1);
  });

  test("a purge that is told to end does not wait for its archive, and keeps what that has", async (scene) => {
    const { later } = await published(scene);
    const ending = new AbortController();
    const archive = (): Promise<void> => {
      void turn().then(() => ending.abort());
      return new Promise(() => undefined);
    };
    assert.equal(await scene.store.operator.purge(later, by, { archive, signal: ending.signal }), 0);
    assert.equal(await scene.store.operator.purge(later, by, { signal: ending.signal }), 0);
    assert.equal((await stored(scene)).length, events + 1);
    assert.deepEqual(await scene.audit(), []);
    assert.equal(await scene.store.operator.purge(later, by), events);
  });

  test("keys go by a retention of their own", async (scene) => {
    const again = async (): Promise<boolean> => (await scene.add(scene.row("order-1", { idempotencyKey: "key" })))[0]!.duplicate;
    const day = 86_400_000;
    const longAgo = new Date(scene.clock.now() - 100 * day); // so early that no event is purged
    assert.equal(await again(), false);
    await scene.clock.advance(3 * day);
    await scene.store.operator.purge(longAgo, by);
    assert.equal(await again(), true, "seven days, unless told otherwise");
    await scene.store.operator.purge(longAgo, by, { keyRetentionMs: 2 * day });
    assert.equal(await again(), false);
    await scene.clock.advance(8 * day);
    await scene.store.operator.purge(longAgo, by);
    assert.equal(await again(), false);
  });
}
