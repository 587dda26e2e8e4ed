import assert from "node:assert/strict";
import type { Status } from "../contracts/operator.ts";
import type { Outcome } from "../contracts/outbox-store.ts";
import { states, type State } from "../core/event.ts";
import { seededRandom } from "../core/random.ts";
import type { Reason } from "../core/reason.ts";
import type { StoreSuite } from "./harness.ts";
import { payloadCases } from "./operator-payloads.ts";
import { purgeCases } from "./operator-purge.ts";
import {
  by,
  cases,
  code,
  dry,
  heldFor,
  ids,
  judgeBy,
  near,
  parked,
  published,
  retry,
  returned,
  ttlMs,
  type SceneRelay,
  type Scene,
} from "./scene.ts";

/** Counts the events one by one. */
async function counted<Db, Tx>({ store }: Scene<Db, Tx>): Promise<Status["states"]> {
  const counts = Object.fromEntries(states.map((state) => [state, 0])) as Record<State, number>;
  for (const { state } of await store.operator.list({ limit: 100_000 })) counts[state]++;
  return counts;
}

/** Three dead events of two kinds with a follower each, and one event in every other state. */
async function mixture<Db, Tx>(scene: Scene<Db, Tx>): Promise<{ relay: SceneRelay; dead: string[] }> {
  const relay = await scene.relay("r1");
  const rows = ["d1", "d2", "d3", "f", "b", "p"].map((name) => scene.row(name, { type: name === "d3" ? "OrderLost" : "OrderPlaced" }));
  await scene.add(...rows);
  const [d1, d2, d3, f, b] = ids(rows);
  const outcomes = new Map([
    [d1!, parked(false, "too large")],
    [d2!, parked(false, "too large")],
    [d3!, parked(false, "no route")],
    [f!, retry(3_600_000)],
    [b!, heldFor("t")],
  ]);
  await relay.settle(await relay.claim(), judgeBy(outcomes));
  for (const name of ["d1", "d2", "d3"]) await scene.addTo(name, 1);
  await relay.drain();
  await scene.add(scene.row("delayed", { availableAt: new Date(scene.clock.now() + 3_600_000) }));
  return { relay, dead: [d1!, d2!, d3!] };
}

export function operatorSuite<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  const test = cases(suite, "operator");

  test("status of an empty store", async ({ store }) => {
    const { schemaVersion, watch: _watch, tail, ...status } = await store.operator.status();
    assert.ok(Number.isInteger(schemaVersion) && schemaVersion > 0);
    // Of a store with a log: nobody reads it, and nothing is settled by it.
    if (tail !== undefined) assert.deepEqual(tail, { relay: null, floor: 0n, position: null });
    assert.deepEqual(status, {
      states: { PENDING: 0, PUBLISHING: 0, PUBLISHED: 0, FAILED: 0, BLOCKED: 0, DEAD: 0, DISCARDED: 0 },
      estimated: [],
      oldestUnpublishedMs: null,
      oldest: { claimableMs: null, blockedMs: null, deadMs: null, types: [] },
      relays: [],
      lanes: { total: 64, owned: 0, free: 64 },
      holds: { aggregates: 0, blocked: 0, list: [] },
      breakers: [],
      window: { events: 0, suspects: 0 },
      dead: [],
    });
  });

  test("status tells what is stuck and why", async (scene) => {
    await mixture(scene);
    await scene.clock.advance(30_000);
    const status = await scene.status();
    assert.deepEqual(status.states, { PENDING: 1, PUBLISHING: 0, PUBLISHED: 1, FAILED: 1, BLOCKED: 4, DEAD: 3, DISCARDED: 0 });
    assert.deepEqual([status.holds.aggregates, status.holds.blocked, status.holds.list.length], [5, 4, 5]);
    assert.deepEqual(
      status.holds.list.flatMap(({ destination }) => destination ?? []),
      ["t"],
    );
    near(new Date(scene.clock.now() - status.oldestUnpublishedMs!), scene.clock.now() - 30_000);
    const [breaker, ...others] = status.breakers;
    assert.deepEqual([breaker?.destination, breaker?.aggregates, others], ["t", 1, []]);
    const groups = new Map(status.dead.map(({ error, events, oldest }) => [error, { events, oldest }]));
    assert.deepEqual([groups.get("too large")?.events, groups.get("no route")?.events, groups.size], [2, 1, 2]);
    near(groups.get("too large")!.oldest, scene.clock.now() - 30_000);
  });

  test("status tells the ages of what can be claimed, is blocked and is dead apart, by aggregate type", async (scene) => {
    await mixture(scene);
    const ago = (ms: number): number => scene.clock.now() - ms;
    const age = (found: number | null | undefined, ms: number): void =>
      near(typeof found === "number" ? new Date(ago(found)) : null, ago(ms));
    const before = await scene.status();
    assert.equal(before.oldest.claimableMs, null, "the failed event and the delayed one wait for their time");
    await scene.add(scene.row("i1", { aggregateType: "Invoice" }), scene.row("late", { availableAt: new Date(ago(-20_000)) }));
    await scene.clock.advance(30_000);
    const { oldest } = await scene.status();
    for (const ms of [oldest.claimableMs, oldest.blockedMs, oldest.deadMs]) age(ms, 30_000);
    const types = new Map(oldest.types.map((type) => [type.aggregateType, type]));
    assert.deepEqual([...types.keys()].sort(), ["Invoice", "Order"]);
    age(types.get("Order")?.claimableMs, 10_000);
    age(types.get("Order")?.blockedMs, 30_000);
    age(types.get("Order")?.deadMs, 30_000);
    age(types.get("Invoice")?.claimableMs, 30_000);
    assert.deepEqual([types.get("Invoice")?.blockedMs, types.get("Invoice")?.deadMs], [null, null]);
    await scene.clock.advance(3_600_000);
    const later = (await scene.status()).oldest.types.find(({ aggregateType }) => aggregateType === "Order");
    age(later?.claimableMs, 3_630_000);
  });

  test("events that were refused for one reason are one group, which a code or the first words of it find", async (scene, relay) => {
    const rows = Array.from({ length: 12 }, (_, n) => scene.row(`order-${n}`));
    await scene.add(...rows);
    const window = await relay.claim();
    const { claims } = window;
    const reasonOf = (n: number): Required<Reason> =>
      n < 8
        ? { code: "MESSAGE_TOO_LARGE", error: "its … bytes are too many", detail: `its ${n} bytes are too many` }
        : { code: "", error: "no route", detail: "" };
    await relay.settle(window, (claim): Outcome => ({ claim, as: "parked", release: false, ...reasonOf(claims.indexOf(claim)) }));
    const { dead } = await scene.status();
    assert.deepEqual(
      dead.map(({ error, events }) => [error, events]),
      [
        ["MESSAGE_TOO_LARGE: its … bytes are too many", 8],
        ["no route", 4],
      ],
    );
    assert.ok(dead.every(({ example }) => rows.some((row) => row.id === example)));
    const shown = await scene.show(claims[0]!.envelope.id);
    assert.deepEqual([shown.errorCode, shown.lastError, shown.errorDetail], Object.values(reasonOf(0)));
    assert.deepEqual(await scene.show(claims[8]!.envelope.id).then(({ errorCode, errorDetail }) => [errorCode, errorDetail]), [null, null]);
    const found = async (error: string): Promise<number> =>
      (await scene.store.operator.redrive({ error }, { who: "ann", dryRun: true })).events;
    for (const error of ["MESSAGE_TOO_LARGE", "MESSAGE", dead[0]!.error]) assert.equal(await found(error), 8, error);
    assert.equal((await scene.store.operator.list({ state: "DEAD", error: "MESSAGE", limit: 20 })).length, 8);
    for (const error of ["no", "no route"]) assert.equal(await found(error), 4, error);
    for (const error of ["message", "no route at all", "_ESSAGE", "%"]) assert.equal(await found(error), 0, error);
  });

  test("list: newest first, page by page, by state and name", async (scene, relay) => {
    const rows = Array.from({ length: 25 }, (_, n) => scene.row(`order-${n % 5}`, { type: n % 2 === 0 ? "Even" : "Odd" }));
    await scene.add(...rows);
    const { operator } = scene.store;
    const seen: string[] = [];
    for (let page = await operator.list({ limit: 10 }); page.length > 0;) {
      seen.push(...ids(page));
      page = await operator.list({ limit: 10, beforeSeq: page.at(-1)!.seq });
    }
    assert.deepEqual(seen, ids(rows).reverse());
    const finds = async (count: number, filter: object): Promise<void> =>
      assert.equal((await operator.list({ limit: 100, ...filter })).length, count, JSON.stringify(filter));
    await finds(5, { aggregateId: "order-3" });
    await finds(13, { type: "Even" });
    await finds(2, { type: "Even", aggregateId: "order-3", aggregateType: "Order" });
    await finds(0, { aggregateType: "order" });
    const window = await relay.claim({ limit: 5 });
    await finds(5, { state: "PUBLISHING" });
    await finds(20, { state: "PENDING" });
    await relay.publish(window);
    await finds(5, { state: "PUBLISHED" });
    await finds(0, { state: "DEAD" });
  });

  test("show tells everything of one event, or that there is none", async (scene) => {
    const availableAt = new Date(scene.clock.now() + 5_000);
    const row = scene.row("order-1", {
      payload: Uint8Array.of(0, 255),
      contentType: "application/octet-stream",
      headers: { tenant: "t1" },
      idempotencyKey: "k",
      eventVersion: 3,
      availableAt,
    });
    await scene.add(row);
    const { seq, lane, createdAt, payload, headers, ...shown } = await scene.show(row.id);
    const { payload: _payload, headers: _headers, ...given } = row;
    assert.deepEqual(shown, {
      ...given,
      payloadBytes: 2,
      state: "PENDING",
      retryCount: 0,
      nextAttemptAt: null,
      lastError: null,
      errorCode: null,
      errorDetail: null,
      publishedAt: null,
      owner: null,
      hold: null,
    });
    assert.deepEqual([...(payload as Uint8Array)], [0, 255]);
    assert.deepEqual({ ...headers }, { tenant: "t1" });
    assert.equal(typeof seq, "bigint");
    assert.ok(lane === null || (lane >= 0 && lane < 64));
    near(createdAt, scene.clock.now());
    assert.equal(await scene.store.operator.show("00000000-0000-7000-8000-ffffffffffff"), null);
  });

  for (const action of ["redrive", "discard"] as const) {
    test(`${action}: a dry run says what would be done and does nothing`, async (scene) => {
      const { dead, relay } = await mixture(scene);
      const before = await counted(scene);
      const reports = async (actor: typeof by): Promise<void> => {
        const report = await scene.store.operator[action]({}, actor);
        assert.deepEqual({ ...report, ids: [...report.ids].sort() }, { events: 3, followers: 3, ids: dead });
      };
      await reports(dry);
      assert.deepEqual(await counted(scene), before);
      assert.deepEqual(await relay.drain(), []);
      assert.deepEqual(await scene.audit(), []);
      await reports(by);
      assert.deepEqual(await scene.audit(), [{ who: "ada", action, events: 3 }]);
    });

    test(`${action}: only what matches`, async (scene) => {
      const { dead } = await mixture(scene);
      const { operator } = scene.store;
      const of = async (filter: object): Promise<number> => (await operator[action](filter, dry)).events;
      assert.equal(await of({ error: "too large" }), 2);
      assert.equal(await of({ type: "OrderLost" }), 1);
      assert.equal(await of({ aggregateType: "Order", aggregateId: "d2" }), 1);
      assert.equal(await of({ aggregateId: "d2", error: "no route" }), 0);
      assert.equal(await of({ ids: [] }), 0);
      assert.equal(await of({ ids: dead.slice(0, 2), type: "OrderPlaced" }), 2);
      assert.equal((await operator[action]({ ids: [dead[0]!] }, by)).events, 1);
      const expected = action === "redrive" ? "PENDING" : "DISCARDED";
      assert.deepEqual(await scene.states(dead), [expected, "DEAD", "DEAD"]);
    });

    test(`${action}: only what is DEAD`, async (scene) => {
      const { dead } = await mixture(scene);
      const { operator } = scene.store;
      const others = ids(await operator.list({ limit: 100 })).filter((id) => !dead.includes(id));
      const before = await counted(scene);
      for (const id of others) await assert.rejects(operator[action]({ ids: [dead[0]!, id] }, by), code("WRONG_STATE"));
      await assert.rejects(operator[action]({ ids: [dead[0]!, "00000000-0000-7000-8000-ffffffffffff"] }, by), code("NOT_FOUND"));
      assert.deepEqual(await counted(scene), before);
      assert.deepEqual(await scene.audit(), []);
    });
  }

  test("an event that was discarded is not dead any more, and cannot be redriven", async (scene) => {
    const { dead } = await mixture(scene);
    const { operator } = scene.store;
    await operator.discard({ ids: [dead[0]!] }, by);
    assert.equal((await operator.redrive({}, by)).events, 2);
    assert.deepEqual(await scene.states(dead), ["DISCARDED", "PENDING", "PENDING"]);
    assert.deepEqual(await scene.audit(), [
      { who: "ada", action: "discard", events: 1 },
      { who: "ada", action: "redrive", events: 2 },
    ]);
  });

  test("purge deletes what is published or discarded and old, and nothing else", async (scene) => {
    const { relay, dead } = await mixture(scene);
    const { operator } = scene.store;
    await operator.discard({ ids: [dead[0]!] }, by);
    const claimed = await scene.addTo("claimed", 1);
    const window = await relay.claim();
    await scene.clock.advance(20_000);
    const young = await scene.addTo("young", 1);
    await relay.publish(await relay.claim());
    const before = await counted(scene);
    const cut = new Date(scene.clock.now() - 10_000);
    assert.equal(await operator.purge(cut, dry), 2, "one published and one discarded event are old enough");
    assert.deepEqual(await counted(scene), before);
    assert.equal(await operator.purge(cut, by), 2);
    assert.deepEqual(await counted(scene), { ...before, PUBLISHED: before.PUBLISHED - 1, DISCARDED: before.DISCARDED - 1 });
    assert.deepEqual(await scene.states(young), ["PUBLISHED"]);
    assert.equal((await scene.audit()).filter(({ action }) => action === "purge").length, 1);
    await relay.publish(window);
    assert.deepEqual(await scene.states(claimed), ["PUBLISHED"]);
  });

  test("purge goes by the moment of publishing", async (scene) => {
    const relay = await scene.relay("r1");
    const ids = await scene.addTo("order-1", 1);
    await scene.clock.advance(60_000);
    await relay.drain();
    assert.equal(await scene.store.operator.purge(new Date(scene.clock.now() - 30_000), by), 0);
    assert.deepEqual(await scene.states(ids), ["PUBLISHED"]);
    await scene.clock.advance(60_000);
    assert.equal(await scene.store.operator.purge(new Date(scene.clock.now() - 30_000), by), 1);
  });

  purgeCases(suite);
  payloadCases(suite);

  for (const seed of [1, 2, 3, 4, 5]) {
    test(`status equals the events after every step of a random history (${seed})`, async (scene) => {
      const random = seededRandom(seed);
      const pick = (n: number): number => Math.floor(random.next() * n);
      const judges = [published, published, published, retry(3_000), parked(), parked(true), returned, heldFor("t")];
      let relay = await scene.relay("r0");
      for (let step = 0; step < 60; step++) {
        const doing = pick(10);
        if (doing < 4) await scene.addTo(`order-${pick(6)}`, 1 + pick(3));
        else if (doing < 8) {
          const window = await relay.claim({ limit: 1 + pick(12), narrow: pick(3) === 0 });
          // As a relay does it: later events of the same aggregate are returned after one that was not published.
          const stopped = new Set<string>();
          if (window.id !== null && pick(8) > 0) {
            await relay.settle(window, (claim) => {
              const { aggregateId } = claim.envelope;
              const outcome = stopped.has(aggregateId) ? returned(claim) : judges[pick(judges.length)]!(claim);
              if (outcome.as !== "published") stopped.add(aggregateId);
              return outcome;
            });
          }
        } else if (doing === 8) {
          await scene.clock.advance(pick(4) === 0 ? ttlMs + 1_000 : 3_000);
          if ((await scene.store.leases.look()).live.length === 0) relay = await scene.relay(`r${step}`);
        } else {
          await relay.release("t", 1 + pick(3));
          await scene.store.operator[pick(2) === 0 ? "redrive" : "discard"]({ aggregateId: `order-${pick(6)}` }, by);
        }
        const status = await scene.status();
        assert.deepEqual(status.states, await counted(scene), `step ${step}`);
        assert.equal(status.holds.blocked, status.states.BLOCKED);
      }
    });
  }
}
