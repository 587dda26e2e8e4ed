import { describe, expect, test } from "vitest";
import type { Outgoing } from "../../src/contracts/sink.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay, type Relay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { seededRandom } from "../../src/core/random.ts";
import { manualClock, type ManualClock } from "../../src/testing/manual-clock.ts";
import { type Bench, benches, draft } from "../support/outbox.ts";
import { firstDeliveries, scriptedSink } from "../support/scripted-sink.ts";

const start = Date.UTC(2030, 0, 1);
const never = new Promise<never>(() => undefined);
const nameOf = (relay: string): string => relay.split(":")[0]!;

interface Mortal {
  readonly relay: Relay;
  dead: boolean;
  readonly events: PathEvent[];
}

/** A relay that dies where it stands when a window holds one of these ids: whatever it waits for never comes. */
function mortalRelay(
  bench: Bench,
  clock: ManualClock,
  options: Partial<RelayOptions> & Pick<RelayOptions, "sink">,
  deadly: (ids: readonly string[]) => boolean,
): Mortal {
  const mortal = { dead: false, events: [] as PathEvent[] } as { relay: Relay; dead: boolean; events: PathEvent[] };
  const part = <T extends object>(whole: T): T =>
    new Proxy(whole, {
      get: (target, name) => {
        const call = Reflect.get(target, name) as (...values: unknown[]) => Promise<unknown>;
        return (...values: unknown[]) => (mortal.dead ? never : call(...values).then((result) => (mortal.dead ? never : result)));
      },
    });
  mortal.relay = createRelay({
    store: { ...bench.store, outbox: part(bench.store.outbox), leases: part(bench.store.leases) },
    clock,
    leaseMs: 1_000,
    pollIntervalMs: 20,
    observe: (event) => void mortal.events.push(event),
    failpoints: {
      hit: (at, ids) => {
        if (at === "before-publish" && deadly(ids)) mortal.dead = true;
        return mortal.dead ? never : undefined;
      },
    },
    ...options,
  });
  void mortal.relay.start();
  return mortal;
}

describe.each(Object.entries(benches))("%s: an event that kills the relay", (_name, open) => {
  test("is parked after three deaths alone; what was with it in the window, and everything else, is published", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink();
    const poison = draft("poison", 1);
    const neighbours = Array.from({ length: 40 }, (_, i) => draft(`n-${i % 10}`, Math.floor(i / 10) + 1));
    const follower = draft("poison", 2);
    await bench.add(...neighbours.slice(0, 20), poison, follower, ...neighbours.slice(20));
    let deaths = 0;
    let current: Mortal | null = null;
    const died: Extract<PathEvent, { type: "relay.died" }>[] = [];
    for (let turn = 0; turn < 400 && (await bench.stateOf(poison.id)) !== "DEAD"; turn++) {
      if (current === null || current.dead) {
        if (current?.dead === true) deaths++;
        current = mortalRelay(bench, clock, { sink, batch: 100 }, (ids) => ids.includes(poison.id));
      }
      await clock.advance(100);
    }
    for (const event of current!.events) if (event.type === "relay.died") died.push(event);
    const record = await bench.operator.show(poison.id);
    expect(record).toMatchObject({ state: "DEAD", errorCode: "CRASHED_RELAY" });
    // A window of 42, then of 4, then of one, three times: nothing is parked before it was alone three times.
    expect(deaths).toBe(5);
    await clock.advance(2_000);
    expect(died).toMatchObject([{ id: poison.id }]);
    for (const event of neighbours) expect(await bench.stateOf(event.id)).toBe("PUBLISHED");
    expect(await bench.stateOf(follower.id)).toBe("BLOCKED");
    for (const order of firstDeliveries(sink.log).values()) expect(order).toEqual([1, 2, 3, 4]);
    expect(sink.sent).not.toContain(poison.id);
    await current!.relay.stop();
  });

  test("while relays that are killed for no fault of their events' park nothing", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink();
    const random = seededRandom(7);
    let n = 0;
    for (let kills = 0; kills < 10; kills++) {
      const last = 1 + Math.floor(random.next() * 6);
      let windows = 0;
      const current = mortalRelay(bench, clock, { sink, batch: 10 }, () => ++windows === last);
      for (let step = 0; step < 200 && !current.dead; step++) {
        await bench.add(...["a", "b", "c"].map((aggregate) => draft(aggregate, n + 1)));
        n++;
        await clock.advance(20);
      }
      expect(current.dead).toBe(true);
    }
    const survivor = mortalRelay(bench, clock, { sink }, () => false);
    await clock.advance(5_000);
    expect((await bench.operator.status()).states).toMatchObject({ DEAD: 0, PUBLISHED: 3 * n });
    for (const order of firstDeliveries(sink.log).values()) expect(order).toEqual(Array.from({ length: n }, (_, i) => i + 1));
    await survivor.relay.stop();
  });
});

describe.each(Object.entries(benches))("%s: a relay that stands still past its lease", (_name, open) => {
  test("changes no row with a late settle, drops the lanes, and joins again", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink();
    let frozen: Promise<void> | null = null;
    let thaw: () => void = () => undefined;
    const events: PathEvent[] = [];
    // Frozen as a whole: neither its settle nor its renewals move.
    const slow = createRelay({
      store: bench.store,
      sink: { ...sink, publish: (batch, signal) => sink.publish(batch, signal) },
      clock,
      relayId: "slow",
      leaseMs: 1_000,
      pollIntervalMs: 20,
      observe: (event) => void events.push(event),
      failpoints: {
        hit: (at) => {
          if (at === "after-publish" && frozen === null) frozen = new Promise((resolve) => (thaw = resolve));
          return frozen ?? undefined;
        },
      },
    });
    void slow.start();
    await clock.advance(50);
    const event = draft("a", 1);
    await bench.add(event, draft("a", 2));
    await clock.advance(100);
    expect(frozen).not.toBeNull();
    const other = createRelay({ store: bench.store, sink, clock, relayId: "other", leaseMs: 1_000, pollIntervalMs: 20 });
    void other.start();
    await clock.advance(4_000);
    const before = await bench.operator.list({ limit: 10 });
    expect(before.map(({ state }) => state)).toEqual(["PUBLISHED", "PUBLISHED"]);
    thaw();
    await clock.advance(20);
    expect(await bench.operator.list({ limit: 10 })).toEqual(before);
    expect(events.some(({ type }) => type === "lanes.lost")).toBe(true);
    await clock.advance(2_000);
    const { relays } = await bench.operator.status();
    expect(relays.map(({ relay, lanes }) => [nameOf(relay), lanes.length]).sort()).toEqual([
      ["other", 32],
      ["slow", 32],
    ]);
    expect(firstDeliveries(sink.log).get("Order\0a")).toEqual([1, 2]);
    await slow.stop();
    await other.stop();
  });

  test("in a step that never ends, it does not renew, so that another relay takes over", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const hanging = { ...bench.store, outbox: { ...bench.store.outbox, claim: () => never } };
    const hung = createRelay({ store: hanging, sink: scriptedSink(), clock, relayId: "hung", leaseMs: 2_000, pollIntervalMs: 20 });
    void hung.start();
    await bench.add(draft("a", 1));
    await clock.advance(1_500);
    const sink = scriptedSink();
    const other = createRelay({ store: bench.store, sink, clock, relayId: "other", leaseMs: 2_000, pollIntervalMs: 20 });
    void other.start();
    await clock.advance(6_000);
    expect(sink.log).toHaveLength(1);
    expect(
      (await bench.operator.status()).relays.filter(({ live }) => live).map(({ relay, lanes }) => [nameOf(relay), lanes.length]),
    ).toEqual([["other", 64]]);
    await hung.stop();
    await other.stop();
  });

  test("in a publish that never ends, it gives up at the deadline, spends no attempt and goes on with other topics", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const inner = scriptedSink();
    const sink = {
      ...inner,
      publish: (batch: readonly Outgoing[], signal: AbortSignal) =>
        batch.some(({ topic }) => topic === "bad.events") ? never : inner.publish(batch, signal),
    };
    const relay = createRelay({ store: bench.store, sink, clock, leaseMs: 10_000, pollIntervalMs: 20 });
    void relay.start();
    const bad = draft("a", 1, { aggregateType: "Bad" });
    await bench.add(bad);
    await clock.advance(100);
    await bench.add(draft("b", 1));
    await clock.advance(100);
    expect(inner.log).toMatchObject([{ topic: "order.events" }]);
    await clock.advance(6_300);
    expect(await bench.operator.show(bad.id)).toMatchObject({ state: "BLOCKED", retryCount: 0 });
    await relay.stop();
  });
});

describe.each(Object.entries(benches))("%s: a relay that comes back under its old name", (_name, open) => {
  test("takes up what its past life left, once that lease has run out", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink();
    const event = draft("a", 1);
    await bench.add(event);
    const past = mortalRelay(bench, clock, { sink, relayId: "host-1" }, () => true);
    await clock.advance(100);
    expect(past.dead).toBe(true);
    const present = mortalRelay(bench, clock, { sink, relayId: "host-1" }, () => false);
    await clock.advance(3_000);
    expect(await bench.stateOf(event.id)).toBe("PUBLISHED");
    await present.relay.stop();
  });
});

describe.each(Object.entries(benches))("%s: a clean stop", (_name, open) => {
  test("publishes nothing twice and hands the lanes over at once", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink({ before: () => clock.sleep(30) });
    const options = { store: bench.store, sink, clock, leaseMs: 60_000, pollIntervalMs: 20, batch: 5 };
    const other = createRelay({ ...options, relayId: "other" });
    void other.start();
    let n = 0;
    for (let round = 0; round < 12; round++) {
      const relay = createRelay({ ...options, relayId: `r${round}` });
      void relay.start();
      for (let i = 0; i < 10; i++) {
        n++;
        await bench.add(...["a", "b", "c", "d"].map((aggregate) => draft(aggregate, n)));
        await clock.advance(round * 7 + i * 13);
      }
      const drained = relay.drain();
      await clock.advance(4_000); // a fifteenth of the lease
      await drained;
      expect((await bench.operator.status()).relays.map(({ relay: name, lanes }) => [nameOf(name), lanes.length])).toEqual([["other", 64]]);
    }
    await clock.advance(10_000);
    expect(sink.log).toHaveLength(4 * n);
    for (const order of firstDeliveries(sink.log).values()) expect(order).toEqual(Array.from({ length: n }, (_, i) => i + 1));
    await other.stop();
  });
});

describe.each(Object.entries(benches))("%s: a lane won with an old backlog", (_name, open) => {
  test("while newer events of the same aggregates arrive and lanes move, order is kept", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink();
    const aggregates = Array.from({ length: 30 }, (_, i) => `a-${i}`);
    for (let n = 1; n <= 40; n++) await bench.add(...aggregates.map((aggregate) => draft(aggregate, n)));
    const relays: Relay[] = [];
    for (let n = 41; n <= 80; n++) {
      if (n % 10 === 1) {
        const relay = createRelay({ store: bench.store, sink, clock, leaseMs: 1_000, pollIntervalMs: 20, batch: 20 });
        void relay.start();
        relays.push(relay);
      }
      if (n === 65) void relays[0]!.drain();
      if (n === 70) void relays[1]!.stop();
      await bench.add(...aggregates.map((aggregate) => draft(aggregate, n)));
      await clock.advance(35);
    }
    await clock.advance(10_000);
    for (const order of firstDeliveries(sink.log).values()) expect(order).toEqual(Array.from({ length: 80 }, (_, i) => i + 1));
    expect((await bench.operator.status()).states.PUBLISHED).toBe(30 * 80);
    for (const relay of relays) await relay.stop();
  });
});
