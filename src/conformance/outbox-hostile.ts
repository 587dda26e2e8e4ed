import assert from "node:assert/strict";
import type { Claim, Outcome } from "../contracts/outbox-store.ts";
import type { HostileRow, StoreSuite } from "./harness.ts";
import { by, cases, dry, parked, published, retry, ttlMs, type SceneRelay, type Scene } from "./scene.ts";

/** As a relay does it: an unreadable row is parked unsent. */
const judge = (claim: Claim): Outcome =>
  claim.unreadable === undefined ? published(claim) : parked(false, `ROW_UNREADABLE: ${claim.unreadable}`)(claim);

/** Claims and settles all there is, narrow claims in between as a relay does it. */
async function drain(relay: SceneRelay, settle: (claim: Claim) => Outcome = judge): Promise<Map<bigint, Claim>> {
  const taken = new Map<bigint, Claim>();
  for (let idle = 0, round = 0; idle < 2; round++) {
    assert.ok(round < 1_000, "claims did not come to an end");
    const window = await relay.claim({ limit: 10, narrow: round % 2 === 1 });
    idle = window.id === null && !window.more ? idle + 1 : 0;
    for (const claim of window.claims) taken.set(claim.envelope.seq, claim);
    if (window.id !== null) await relay.settle(window, settle);
  }
  return taken;
}

interface Mixed {
  readonly hostile: readonly HostileRow[];
  readonly good: readonly string[];
}

/** Hostile rows between good ones, of aggregates in as many lanes. */
async function mixed<Db, Tx>(scene: Scene<Db, Tx>): Promise<Mixed> {
  const some = (): Promise<string[]> => scene.addEach(Array.from({ length: 30 }, (_, n) => `order-${n}`));
  const before = await some();
  const hostile = await scene.hostile!();
  assert.ok(hostile.length > 0);
  return { hostile, good: [...before, ...(await some())] };
}

/** One row must never stop a relay: only that row fails, and everything else flows. */
export function hostileCases<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "hostile rows").needing("hostileRows");
  const each = (hostile: readonly HostileRow[], check: (row: HostileRow) => void): void => {
    for (const row of hostile) {
      try {
        check(row);
      } catch (cause) {
        throw new Error(`${row.about}: ${String(cause)}`, { cause });
      }
    }
  };

  test("end DEAD with the cause in words, and every other event flows", async (scene, relay) => {
    const { hostile, good } = await mixed(scene);
    const taken = await drain(relay);
    assert.deepEqual(new Set(await scene.states(good)), new Set(["PUBLISHED"]));
    each(hostile, ({ seq, readable }) => {
      const claim = taken.get(seq);
      assert.ok(claim !== undefined, "it was not claimed");
      assert.equal(claim.unreadable === undefined, readable === true, `unreadable: ${claim.unreadable}`);
      if (claim.unreadable !== undefined) assert.match(claim.unreadable, /\w+ \w+/);
      assert.ok(Number.isSafeInteger(claim.failures) && claim.failures >= 0);
    });
    const records = new Map((await scene.store.operator.list({ limit: 1_000 })).map((record) => [record.seq, record]));
    each(hostile, ({ seq, readable }) => {
      const record = records.get(seq);
      assert.equal(record?.state, readable === true ? "PUBLISHED" : "DEAD");
      if (readable !== true) assert.match(record?.lastError ?? "", /^ROW_UNREADABLE: \w+ \w+/);
    });
    const { states, dead } = await scene.status();
    const unreadable = hostile.filter(({ readable }) => readable !== true).length;
    assert.deepEqual([states.DEAD, dead.reduce((sum, group) => sum + group.events, 0)], [unreadable, unreadable]);
  });

  test("can be settled in every way, over and over, and no other event of their windows is held up", async (scene, relay) => {
    const { hostile, good } = await mixed(scene);
    const seqs = new Set(hostile.map(({ seq }) => seq));
    const failing = await drain(relay, (claim) => (seqs.has(claim.envelope.seq) ? retry(3_600_000)(claim) : published(claim)));
    each(hostile, ({ seq }) => assert.ok(failing.has(seq)));
    assert.deepEqual(new Set(await scene.states(good)), new Set(["PUBLISHED"]));
    await scene.clock.advance(3_601_000);
    await scene.store.leases.renew("r1", ttlMs);
    await drain(relay, parked());
    assert.equal((await scene.status()).states.DEAD, hostile.length);
    assert.equal((await scene.store.operator.redrive({}, by)).events, hostile.length);
    const again = await drain(relay, parked(true));
    each(hostile, ({ seq }) => assert.ok(again.has(seq)));
  });

  test("in the window of a relay that died can be taken over", async (scene, relay) => {
    const { hostile, good } = await mixed(scene);
    await relay.claim();
    const taken = await drain(await scene.heir("r2"));
    each(hostile, ({ seq }) => assert.ok(taken.has(seq)));
    assert.deepEqual(new Set(await scene.states(good)), new Set(["PUBLISHED"]));
  });

  test("keep to a bound in bytes", async (scene, relay) => {
    const { hostile } = await mixed(scene);
    const seen = new Set<bigint>();
    for await (const window of relay.windows({ bytes: 64 })) {
      for (const { envelope } of window.claims) seen.add(envelope.seq);
      if (window.id !== null) await relay.settle(window, judge);
    }
    each(hostile, ({ seq }) => assert.ok(seen.has(seq)));
  });

  test("are listed and shown among the others, discarded, archived and purged", async (scene, relay) => {
    const { operator } = scene.store;
    const { hostile } = await mixed(scene);
    const listed = await operator.list({ limit: 1_000 });
    each(hostile, ({ seq }) => assert.ok(listed.some((record) => record.seq === seq)));
    for (const record of listed) {
      JSON.stringify(record, (_, value: unknown) => (typeof value === "bigint" ? String(value) : value));
      assert.ok(!Number.isNaN(record.createdAt.getTime()));
      for (const date of [record.availableAt, record.nextAttemptAt, record.publishedAt])
        assert.ok(date === null || !Number.isNaN(date.getTime()));
      await operator.show(record.id);
    }
    await operator.status();
    await drain(relay, (claim) => (claim.unreadable === undefined ? published(claim) : parked(false)(claim)));
    const dead = await operator.list({ state: "DEAD", limit: 1_000 });
    assert.equal((await operator.discard({}, dry)).events, dead.length);
    assert.equal((await operator.discard({}, by)).events, dead.length);
    let archived = 0;
    await scene.clock.advance(60_000);
    await operator.purge(new Date(scene.clock.now() + 60_000), by, { archive: async (records) => void (archived += records.length) });
    assert.equal(archived, listed.length);
    assert.deepEqual(await operator.list({ limit: 10 }), []);
  });
}
