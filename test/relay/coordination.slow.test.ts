import { describe, expect, test } from "vitest";
import type { PathEvent } from "../../src/core/path-events.ts";
import { LANES } from "../../src/core/lane.ts";
import { seededRandom } from "../../src/core/random.ts";
import { createRelay, type Relay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { manualClock, type ManualClock } from "../../src/testing/manual-clock.ts";
import { type Bench, benches, draft } from "../support/outbox.ts";
import { firstDeliveries, type ScriptedSink, scriptedSink } from "../support/scripted-sink.ts";

const start = Date.UTC(2030, 0, 1);
const leaseMs = 1_000;
const lookMs = leaseMs / 40;
const nameOf = (relay: string): string => relay.split(":")[0]!;

interface Scene {
  readonly clock: ManualClock;
  readonly bench: Bench;
  readonly sink: ScriptedSink;
  readonly events: PathEvent[];
  relay(name: string, options?: Partial<RelayOptions>): Relay;
  /** How many lanes each live relay owns, and how many nobody does. */
  owned(): Promise<Record<string, number>>;
  /** Adds `count` events, to as many aggregates as there are, in turn. */
  add(count: number): Promise<void>;
  /** All was published once, and each aggregate in its order. */
  expectOnce(): void;
}

async function scene(open: (typeof benches)[string], work: (scene: Scene) => Promise<void>): Promise<void> {
  const clock = manualClock(start);
  const random = seededRandom(5);
  await using bench = await open(clock);
  const sink = scriptedSink();
  const events: PathEvent[] = [];
  const relays: Relay[] = [];
  let added = 0;
  await work({
    clock,
    bench,
    sink,
    events,
    relay(name, options) {
      const observe = (event: PathEvent): void => void events.push(event);
      const made = createRelay({
        store: bench.store,
        sink,
        clock,
        random,
        relayId: name,
        leaseMs,
        pollIntervalMs: 20,
        observe,
        ...options,
      });
      relays.push(made);
      void made.start();
      return made;
    },
    async owned() {
      const { lanes, live } = await bench.store.leases.look();
      const counts: Record<string, number> = Object.fromEntries(live.map((relay) => [nameOf(relay), 0]));
      for (const { owner } of lanes) {
        const name = owner === null ? "nobody" : nameOf(owner);
        counts[name] = (counts[name] ?? 0) + 1;
      }
      return counts;
    },
    async add(count) {
      await bench.add(...Array.from({ length: count }, () => draft(`o-${added % 100}`, Math.floor(added++ / 100) + 1)));
    },
    expectOnce() {
      expect(sink.log.length).toBe(added);
      for (const [aggregate, order] of firstDeliveries(sink.log)) expect(order, aggregate).toEqual(order.map((_, i) => i + 1));
    },
  });
  const stopped = Promise.all(relays.map((relay) => relay.stop()));
  await clock.advance(2_000); // one that hangs is left behind after a while
  await stopped;
}

describe.each(Object.entries(benches))("%s: relays with different strategies", (_name, open) => {
  test("a partitioned relay owns every lane beside a leader that does not lead, and shares with its own kind only", () =>
    scene(open, async ({ clock, relay, owned, add, expectOnce, events }) => {
      relay("p1");
      await clock.advance(100);
      relay("l1", { coordination: "leader" });
      await clock.advance(1_000);
      expect(await owned()).toEqual({ p1: LANES, l1: 0 });
      relay("p2");
      await clock.advance(1_000);
      expect(await owned()).toEqual({ p1: 32, p2: 32, l1: 0 });
      const moves = events.length;
      await clock.advance(5_000);
      expect(events.length, "lanes rest").toBe(moves);
      await add(300);
      await clock.advance(500);
      expectOnce();
    }));

  test("partitioned relays share what a static one does not own, and take that too when it dies", () =>
    scene(open, async ({ clock, relay, owned, bench }) => {
      let dead = false;
      const { leases } = bench.store;
      const store = {
        ...bench.store,
        leases: { ...leases, renew: async (...of: Parameters<typeof leases.renew>) => (dead ? undefined : leases.renew(...of)) },
      };
      relay("s", { coordination: "static", own: [0, 1, 2, 3], store });
      await clock.advance(100);
      relay("p1");
      relay("p2");
      await clock.advance(1_000);
      expect(await owned()).toEqual({ s: 4, p1: 30, p2: 30 });
      dead = true;
      await clock.advance(3_000);
      expect(await owned()).toEqual({ p1: 32, p2: 32 });
    }));

  test("a leader leads although a static relay owns the first lanes, and keeps leading when that leaves", () =>
    scene(open, async ({ clock, relay, owned }) => {
      const fixed = relay("s", { coordination: "static", own: [0, 1] });
      await clock.advance(100);
      relay("l1", { coordination: "leader" });
      relay("l2", { coordination: "leader" });
      await clock.advance(1_000);
      const [leads, waits] = (await owned())["l1"] === 0 ? ["l2", "l1"] : ["l1", "l2"];
      expect(await owned()).toEqual({ s: 2, [leads]: 62, [waits]: 0 });
      const drained = fixed.drain();
      await clock.advance(1_000);
      await drained;
      expect(await owned()).toEqual({ [leads]: LANES, [waits]: 0 });
    }));
});

describe.each(Object.entries(benches))("%s: competing relays", (_name, open) => {
  const coordination = "competing";

  test("one that is alone keeps its lanes; with others every lane goes round, nothing is doubled and order holds", () =>
    scene(open, async ({ clock, relay, owned, add, expectOnce, bench, events }) => {
      relay("a", { coordination });
      await clock.advance(1_000);
      expect(await owned()).toEqual({ a: LANES });
      expect(events.filter(({ type }) => type === "lanes.won")).toHaveLength(1);
      relay("b", { coordination });
      relay("c", { coordination });
      const owners = new Map<number, Set<string>>();
      let free = 0;
      const rounds = 100;
      for (let round = 0; round < rounds; round++) {
        await add(30);
        await clock.advance(lookMs);
        for (const { lane, owner } of (await bench.store.leases.look()).lanes) {
          if (owner === null) free++;
          else owners.set(lane, (owners.get(lane) ?? new Set()).add(nameOf(owner)));
        }
      }
      for (const [lane, names] of owners) expect(names.size, `lane ${lane}`).toBe(3);
      expect(free / (rounds * LANES), "how much of the time a lane is free").toBeLessThan(0.25);
      await clock.advance(500);
      expectOnce();
      expect(events.some(({ type }) => type === "lanes.lost")).toBe(false);
    }));

  test("a slow relay keeps no lane: what waits in its lanes is published by the others", () =>
    scene(open, async ({ clock, relay, sink, add, expectOnce }) => {
      const slow = { ...sink, publish: async (...of: Parameters<typeof sink.publish>) => (await clock.sleep(300), sink.publish(...of)) };
      relay("slow", { coordination, sink: slow, batch: 10, batchesInFlight: 1 });
      await clock.advance(100);
      relay("quick", { coordination });
      await clock.advance(500);
      await add(2_000); // 60 s of the slow one's time
      await clock.advance(6_000);
      expectOnce();
    }));

  test("a clean stop hands its lanes over at once", () =>
    scene(open, async ({ clock, relay, owned, add, expectOnce }) => {
      const a = relay("a", { coordination });
      relay("b", { coordination });
      await clock.advance(1_000);
      await add(500);
      const drained = a.drain();
      await clock.advance(5 * lookMs);
      await drained;
      await clock.advance(lookMs);
      expect(await owned()).toEqual({ b: LANES });
      await clock.advance(200);
      expectOnce();
    }));
});

/** What changes the store waits while it is closed, as it does for a lock; reads go on. */
function gate<T extends Bench["store"]>(store: T): { store: T; close(): void; open(): void } {
  let opened: Promise<void> = Promise.resolve();
  let open: () => void = () => undefined;
  const part = <P extends object>(whole: P): P =>
    new Proxy(whole, {
      get: (target, name) => {
        const call = Reflect.get(target, name) as (...values: unknown[]) => Promise<unknown>;
        return name === "look" ? call : (...values: unknown[]) => opened.then(() => call(...values));
      },
    });
  return {
    store: { ...store, leases: part(store.leases), outbox: part(store.outbox) },
    close: () => void (opened = new Promise((resolve) => (open = resolve))),
    open: () => open(),
  };
}

describe.each(Object.entries(benches))("%s: a store that takes no writes for a while", (_name, open) => {
  test.each([
    [650, 0],
    [650, 300],
    [1_100, 150],
    [3_000, 0],
    [3_000, 300],
  ])("for %d ms, and one relay gets to it first, started %d ms after the other: costs no lane and no duplicate", (ms, after) =>
    scene(open, async ({ clock, relay, bench, owned, add, expectOnce, events }) => {
      const [slow, first] = [gate(bench.store), gate(bench.store)];
      relay("slow", { store: slow.store });
      await clock.advance(after);
      relay("first", { store: first.store });
      await clock.advance(1_000);
      await add(200);
      await clock.advance(5);
      slow.close();
      first.close();
      const moves = (): PathEvent[] => events.filter(({ type }) => type.startsWith("lanes."));
      const before = moves().length;
      await clock.advance(ms);
      first.open();
      await clock.advance(250);
      slow.open();
      await clock.advance(3_000);
      expect(moves().slice(before)).toEqual([]);
      expect(await owned()).toEqual({ slow: 32, first: 32 });
      await add(100);
      await clock.advance(300);
      expectOnce();
    }),
  );

  test("and then again before all have renewed: costs no lane and no duplicate", () =>
    scene(open, async ({ clock, relay, bench, owned, add, expectOnce, events }) => {
      const [slow, first] = [gate(bench.store), gate(bench.store)];
      relay("slow", { store: slow.store });
      relay("first", { store: first.store });
      relay("second", { store: first.store });
      await clock.advance(1_000);
      const before = await owned();
      await add(200);
      await clock.advance(5);
      slow.close();
      first.close();
      const moves = (): PathEvent[] => events.filter(({ type }) => type.startsWith("lanes."));
      const moved = moves().length;
      for (const ms of [1_500, 400, 400, 400]) {
        await clock.advance(ms);
        first.open();
        await clock.advance(5);
        first.close();
      }
      first.open();
      slow.open();
      await clock.advance(1_000);
      expect(moves().slice(moved)).toEqual([]);
      expect(await owned()).toEqual(before);
      expectOnce();
    }));

  test("a relay that starts meanwhile does not take the others for dead", () =>
    scene(open, async ({ clock, relay, bench, owned, add, expectOnce, events }) => {
      const [old, late] = [gate(bench.store), gate(bench.store)];
      relay("old", { store: old.store });
      await clock.advance(1_000);
      await add(200);
      await clock.advance(5);
      old.close();
      late.close();
      await clock.advance(2_000);
      relay("late", { store: late.store });
      await clock.advance(100);
      late.open();
      await clock.advance(250);
      old.open();
      await clock.advance(1_000);
      expect(events.some(({ type }) => type === "lanes.lost")).toBe(false);
      expect(await owned()).toEqual({ old: 32, late: 32 });
      expectOnce();
    }));

  test("a dead relay's lanes are taken although every write takes long", () =>
    scene(open, async ({ clock, relay, bench, owned, events }) => {
      const dead = gate(bench.store);
      relay("dead", { store: dead.store });
      await clock.advance(500);
      dead.close();
      const { leases } = bench.store;
      const slowly = async <T>(work: () => Promise<T>): Promise<T> => (await clock.sleep(300), work());
      relay("heir", {
        store: {
          ...bench.store,
          leases: {
            ...leases,
            renew: (...of) => slowly(() => leases.renew(...of)),
            take: (...of) => slowly(() => leases.take(...of)),
          },
        },
      });
      await clock.advance(6_000);
      expect(events.filter(({ type }) => type === "lanes.lost")).toEqual([]);
      expect((await owned())["heir"]).toBe(LANES);
    }));
});
