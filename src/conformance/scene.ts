import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import type { EventRecord, Status } from "../contracts/operator.ts";
import type { Claim, ClaimRequest, Holding, Outcome, SettleReport, Window } from "../contracts/outbox-store.ts";
import { systemClock } from "../core/clock.ts";
import type { Added, Row, State } from "../core/event.ts";
import type { StoreCan, StoreHarness, StoreSuite } from "./harness.ts";

/** `relay` is r1. It takes every lane when a case first uses it. */
type Body<Db, Tx, T = void> = (scene: Scene<Db, Tx>, relay: SceneRelay) => Promise<T>;
type Case<Db, Tx> = (name: string, body: Body<Db, Tx>) => void;

interface Cases<Db, Tx> extends Case<Db, Tx> {
  /** Cases that not every store can run. Where a store cannot, they are reported as skipped. */
  needing(can: keyof StoreCan): Case<Db, Tx>;
}

/**
 * No case reuses an id of another case. A server may not have purged a deleted row yet (InnoDB purges it once no transaction can see it). A
 * transaction that reuses its id then locks the gap from that id to the next one, until it ends.
 */
let made = 0;

/** When the case that runs began. */
const began = new AsyncLocalStorage<number>();

/** Registers cases with the runner, each with a store of its own. */
export function cases<Db, Tx>(suite: StoreSuite<Db, Tx>, group: string): Cases<Db, Tx> {
  const run = (body: Body<Db, Tx>) => (): Promise<void> => began.run(systemClock.monotonic(), () => inScene(suite, body));
  const needing =
    (can: keyof StoreCan): Case<Db, Tx> =>
    (name, body) =>
      suite.can[can] ? suite.test(`${group}: ${name}`, run(body)) : suite.test.skip?.(`${group}: ${name} (cannot: ${can})`, run(body));
  const test: Case<Db, Tx> = (name, body) => suite.test(`${group}: ${name}`, run(body));
  return Object.assign(test, { needing });
}

async function inScene<Db, Tx, T>(suite: StoreSuite<Db, Tx>, body: Body<Db, Tx, T>): Promise<T> {
  const harness = await suite.create();
  try {
    return await body(createScene(harness, suite), createRelay(harness, "r1"));
  } finally {
    await harness.close();
  }
}

export interface Scene<Db, Tx> extends StoreHarness<Db, Tx> {
  row(aggregateId: string, fields?: Partial<Row>): Row;
  /** Adds in a transaction of its own, and commits it. */
  add(...rows: Row[]): Promise<readonly Added[]>;
  /** One event of each of these aggregates; their ids, in order. */
  addEach(aggregateIds: readonly string[]): Promise<string[]>;
  /** That many events of one aggregate; their ids, in order. */
  addTo(aggregateId: string, count: number): Promise<string[]>;
  /** A live relay that owns these lanes, or all. */
  relay(name: string, lanes?: readonly number[]): Promise<SceneRelay>;
  /** The same, after every current lease has expired: the other relays are dead, with whatever they have claimed. */
  heir(name: string, lanes?: readonly number[]): Promise<SceneRelay>;
  /** The event as an operator sees it. */
  show(id: string): Promise<EventRecord>;
  /** Asserts that an operator sees these values in the event. */
  shows(id: string, fields: Partial<EventRecord>): Promise<void>;
  status(): Promise<Status>;
  states(ids: readonly string[]): Promise<State[]>;
  /** Lanes with aggregates that fall into them, at least two each. */
  lanes(): Promise<readonly { readonly lane: number; readonly aggregates: readonly string[] }[]>;
}

export interface SceneRelay {
  /** The lanes that it owns. It takes them when it is first used. */
  holding(): Promise<Holding>;
  /** Unsettled windows are left out, as a relay does it, unless `open` says otherwise. */
  claim(request?: Partial<ClaimRequest>): Promise<Window>;
  /** The claim with its payload, which is read now if the claim is `unread`. */
  read(claim: Claim): Promise<Claim>;
  settle(window: Window, judge: (claim: Claim) => Outcome): Promise<SettleReport>;
  publish(window: Window): Promise<SettleReport>;
  /** Claims and publishes until there is nothing more; the ids in the order they were claimed. */
  drain(request?: Partial<ClaimRequest>): Promise<string[]>;
  /** Claims until there is nothing more. Each window is published in between, unless it was settled otherwise. */
  windows(request?: Partial<ClaimRequest>): AsyncIterable<Window>;
  /** Releases aggregates that wait for this topic, and returns how many. */
  release(topic: string, limit: number): Promise<number>;
  /** All topics that aggregates wait for, by pages of two. */
  waitingFor(): Promise<string[]>;
}

export const ttlMs = 60_000;

/** An operator who acts, and a dry run. */
export const by = { who: "ada", dryRun: false };
export const dry = { who: "ada", dryRun: true };

export const ids = (those: readonly { readonly id: string }[]): string[] => those.map(({ id }) => id);
export const idsOf = (window: Pick<Window, "claims">): string[] => window.claims.map(({ envelope }) => envelope.id);
export const published = (claim: Claim): Outcome => ({ claim, as: "published" });
export const returned = (claim: Claim): Outcome => ({ claim, as: "returned" });
export const retry =
  (afterMs: number, error = "refused") =>
  (claim: Claim): Outcome => ({ claim, as: "retry", afterMs, error });
export const parked =
  (release = false, error = "refused for good") =>
  (claim: Claim): Outcome => ({ claim, as: "parked", error, release });
export const heldFor =
  (topic: string, why = "no answer", under = topic) =>
  (claim: Claim): Outcome => ({ claim, as: "returned", destination: { topic, why, under } });
/** One judgement for the named events, another for the rest. */
export const judgeBy =
  (named: ReadonlyMap<string, (claim: Claim) => Outcome>, rest: (claim: Claim) => Outcome = published) =>
  (claim: Claim): Outcome =>
    (named.get(claim.envelope.id) ?? rest)(claim);

/** By how much the suite's clock and the store's may differ. */
export const skewMs = 1_000;

/** Approximately equal: a server's clock cannot be stopped, so it may be off by as much as the case has taken so far. */
export function near(actual: Date | null, expectedMs: number): void {
  const now = systemClock.monotonic();
  const passedMs = now - (began.getStore() ?? now);
  assert.ok(
    actual !== null && Math.abs(actual.getTime() - expectedMs) <= skewMs + passedMs,
    `${actual?.toISOString() ?? "null"} is not near ${new Date(expectedMs).toISOString()}`,
  );
}

/** These ids came in this order, whatever came between them. */
export function inOrder(seen: readonly string[], expected: readonly string[]): void {
  const own = new Set(expected);
  assert.deepEqual(
    seen.filter((id) => own.has(id)),
    expected,
  );
}

export function code(expected: string): (error: unknown) => boolean {
  return (error) => {
    assert.equal((error as { code?: unknown }).code, expected, String(error));
    return true;
  };
}

function createScene<Db, Tx>(harness: StoreHarness<Db, Tx>, suite: StoreSuite<Db, Tx>): Scene<Db, Tx> {
  const { store, db } = harness;
  const scene: Scene<Db, Tx> = {
    ...harness,
    row: (aggregateId, fields = {}) => ({
      id: `00000000-0000-7000-8000-${(++made).toString(16).padStart(12, "0")}`,
      aggregateType: "Order",
      aggregateId,
      type: "OrderPlaced",
      eventVersion: 1,
      payload: `{"n":${made}}`,
      contentType: "application/json",
      headers: {},
      idempotencyKey: null,
      availableAt: null,
      ...fields,
    }),
    add: (...rows) => store.transactor.transaction(db, (tx) => store.writer.append(tx, rows)),
    addEach: async (aggregateIds) => ids(await scene.add(...aggregateIds.map((aggregateId) => scene.row(aggregateId)))),
    addTo: (aggregateId, count) => scene.addEach(Array<string>(count).fill(aggregateId)),
    relay: async (name, lanes) => {
      const relay = createRelay(harness, name, lanes);
      await relay.holding();
      return relay;
    },
    heir: async (name, lanes) => {
      await harness.clock.advance(ttlMs + 2_000);
      return scene.relay(name, lanes);
    },
    show: async (id) => {
      const record = await store.operator.show(id);
      assert.ok(record !== null, `there is no event ${id}`);
      return record;
    },
    shows: async (id, fields) => {
      const record = await scene.show(id);
      const shown = Object.keys(fields).map((name) => [name, record[name as keyof EventRecord]]);
      assert.deepEqual(Object.fromEntries(shown), fields);
    },
    status: () => store.operator.status(),
    states: async (ids) => {
      const found: State[] = [];
      for (const id of ids) found.push((await scene.show(id)).state);
      return found;
    },
    lanes: () => scout(suite),
  };
  return scene;
}

function createRelay<Db, Tx>({ store }: StoreHarness<Db, Tx>, name: string, wanted?: readonly number[]): SceneRelay {
  const take = async (): Promise<Holding> => {
    const every = (await store.leases.look()).lanes.map(({ lane }) => lane);
    await store.leases.renew(name, ttlMs);
    return { relay: name, lanes: await store.leases.take(name, wanted ?? every) };
  };
  let taken: Promise<Holding> | undefined;
  const open = new Set<string>();
  const relay: SceneRelay = {
    holding: () => (taken ??= take()),
    claim: async (request = {}) => {
      const window = await store.outbox.claim(await relay.holding(), { limit: 1_000, open: [...open], narrow: false, ...request });
      assert.equal(window.id === null, window.claims.length === 0, "a window has an id exactly when it has claims");
      if (window.id !== null) open.add(window.id);
      return window;
    },
    read: async (claim) => {
      if (claim.unread === undefined) return claim;
      const data = await store.outbox.payload(claim, new AbortController().signal);
      assert.equal(data.byteLength, claim.unread);
      return { ...claim, envelope: { ...claim.envelope, data } };
    },
    settle: async (window, judge) => {
      assert.ok(window.id !== null, "there is no window to settle");
      const report = await store.outbox.settle(name, window.id, window.claims.map(judge));
      open.delete(window.id);
      return report;
    },
    publish: (window) => relay.settle(window, published),
    drain: async (request = {}) => {
      const drained: string[] = [];
      for await (const window of relay.windows(request)) drained.push(...idsOf(window));
      return drained;
    },
    windows: async function* (request = {}) {
      for (let round = 0; round < 10_000; round++) {
        const window = await relay.claim(request);
        if (window.id === null && !window.more) return;
        yield window;
        if (window.id !== null && open.has(window.id)) await relay.publish(window);
      }
      assert.fail("claims did not come to an end");
    },
    release: async (topic, limit) => store.outbox.release(await relay.holding(), topic, limit),
    async waitingFor() {
      const topics: string[] = [];
      for (let page: readonly string[] = [""]; page.length > 0;) {
        page = await store.outbox.waitingFor(topics.at(-1) ?? "", 2);
        assert.ok(page.length <= 2);
        topics.push(...page);
      }
      return topics;
    },
  };
  return relay;
}

const scouted = new WeakMap<object, ReturnType<Scene<unknown, unknown>["lanes"]>>();

/** Only the store knows which aggregates share a lane, so it is asked, once. */
function scout<Db, Tx>(suite: StoreSuite<Db, Tx>): ReturnType<Scene<Db, Tx>["lanes"]> {
  let found = scouted.get(suite);
  if (found === undefined) scouted.set(suite, (found = ask(suite)));
  return found;
}

function ask<Db, Tx>(suite: StoreSuite<Db, Tx>): ReturnType<Scene<Db, Tx>["lanes"]> {
  return inScene(suite, async (scene) => {
    await scene.addEach(Array.from({ length: 400 }, (_, n) => `order-${n}`));
    const aggregates = new Map<number, string[]>();
    for (const { lane, envelope } of (await (await scene.relay("scout")).claim()).claims) {
      aggregates.set(lane, [...(aggregates.get(lane) ?? []), envelope.aggregateId]);
    }
    const shared = [...aggregates].filter(([, names]) => names.length > 1).sort(([a], [b]) => a - b);
    assert.ok(shared.length >= 16, `400 aggregates fall into ${shared.length} lanes only`);
    return shared.map(([lane, names]) => ({ lane, aggregates: names }));
  });
}
