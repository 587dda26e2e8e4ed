import { describe, expect, test } from "vitest";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { manualClock, type ManualClock } from "../../src/testing/manual-clock.ts";
import { type Bench, benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

const start = Date.UTC(2030, 0, 1);
const base = (bench: Bench, clock: ManualClock, events: PathEvent[] = []) => ({
  store: bench.store,
  clock,
  leaseMs: 1_000,
  pollIntervalMs: 20,
  observe: (e: PathEvent) => void events.push(e),
});
const ns = (sink: ReturnType<typeof scriptedSink>, agg: string) => sink.log.filter((m) => m.aggregate.endsWith(`\0${agg}`)).map((m) => m.n);
const never = new Promise<never>(() => undefined);

describe.each(Object.entries(benches))("%s", (name, open) => {
  test("a probe that never ends keeps neither other topics nor a drain waiting", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    let down = true;
    const sink = scriptedSink({ verdict: ({ topic }) => (down || topic === "slow.events" ? "down" : "stored") });
    await bench.add(draft("s", 1, { aggregateType: "Slow" }));
    const relay = createRelay({
      ...base(bench, clock),
      sink: { ...sink, probe: (topic) => (topic === "slow.events" ? never : Promise.resolve()) },
      probeMs: { first: 100, last: 500 },
    });
    void relay.start();
    await clock.advance(1_000);
    await bench.add(draft("a", 1));
    await clock.advance(100);
    down = false;
    await clock.advance(60_000);
    let drainedAt = -1;
    void relay.drain().then(() => (drainedAt = clock.monotonic()));
    await clock.advance(60_000);
    expect({ a: ns(sink, "a"), drained: drainedAt > 0 }).toEqual({ a: [1], drained: true });
    await relay.stop();
  });

  test("a probe that takes its whole time does not delay another topic", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    let down = true;
    const sink = scriptedSink({ verdict: ({ topic }) => (down || topic === "slow.events" ? "down" : "stored") });
    await bench.add(draft("s", 1, { aggregateType: "Slow" }));
    const relay = createRelay({
      ...base(bench, clock),
      leaseMs: 10_000,
      sink: {
        ...sink,
        probe: async (topic, signal) => {
          if (topic !== "slow.events") return;
          await clock.sleep(1e9, signal);
          throw new Error("late");
        },
      },
      probeMs: { first: 100, last: 500 },
    });
    void relay.start();
    await clock.advance(700);
    await bench.add(draft("a", 1));
    await clock.advance(60);
    down = false;
    let waited = 0;
    while (ns(sink, "a").length === 0 && waited < 60_000) {
      await clock.advance(50);
      waited += 50;
    }
    expect(waited).toBeLessThan(1_500);
    await relay.stop();
  });

  test("a connect that never answers shows, and does not keep the lanes from others", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const events: PathEvent[] = [];
    const sink = scriptedSink();
    const a = createRelay({ ...base(bench, clock, events), sink: { ...sink, connect: () => never }, relayId: "a" });
    void a.start();
    await clock.advance(100);
    await bench.add(...Array.from({ length: 100 }, (_, i) => draft(`a${i}`, 1)));
    const b = createRelay({ ...base(bench, clock), sink, relayId: "b" });
    void b.start();
    await clock.advance(60_000);
    let drained = false;
    void a.drain().then(() => (drained = true));
    const before = sink.log.length;
    await clock.advance(10_000);
    expect({ before, trouble: events.filter((e) => e.type !== "lanes.won" && e.type !== "lanes.given").length > 0, drained }).toEqual({
      before: 100,
      trouble: true,
      drained: true,
    });
    await a.stop();
    await b.stop();
  });

  test("after the route is corrected, held events go", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink({
      verdict: ({ topic }) => (topic === "typo" ? "down" : "stored"),
      probe: (topic) => {
        if (topic === "typo") throw new Error("no such topic");
      },
    });
    await bench.add(draft("a", 1));
    const one = createRelay({ ...base(bench, clock), sink, route: "typo" });
    void one.start();
    await clock.advance(500);
    const d = one.drain();
    await clock.advance(1_500);
    await d;
    const two = createRelay({ ...base(bench, clock), sink, route: "good" });
    void two.start();
    await clock.advance(3_600_000 / 10);
    expect(ns(sink, "a")).toEqual([1]);
    await two.stop();
  });

  test("a take whose answer is lost does not leave the lanes with nobody", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink();
    let takes = 0;
    const a = createRelay({
      ...base(bench, clock),
      sink,
      store: {
        ...bench.store,
        leases: {
          ...bench.store.leases,
          take: async (r, l) => {
            const won = await bench.store.leases.take(r, l.slice(0, takes === 0 ? 10 : 64));
            if (takes++ === 1) throw new Error("answer lost");
            return won;
          },
        },
      },
    });
    void a.start();
    await clock.advance(100);
    await bench.add(...Array.from({ length: 100 }, (_, i) => draft(`a${i}`, 1)));
    await clock.advance(30_000);
    expect(sink.log.length).toBe(100);
    await a.stop();
  });

  test("a leave that fails once is tried again on a clean stop", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink();
    let leaves = 0;
    const a = createRelay({
      ...base(bench, clock),
      sink,
      relayId: "a",
      store: {
        ...bench.store,
        leases: {
          ...bench.store.leases,
          leave: async (r) => {
            if (leaves++ === 0) throw new Error("locked");
            return bench.store.leases.leave(r);
          },
        },
      },
    });
    void a.start();
    await clock.advance(100);
    let error: unknown = null;
    a.stopped.catch((e: unknown) => (error = e));
    const d = a.drain();
    await clock.advance(5_000);
    await d;
    expect({ owned: (await bench.operator.status()).relays.length, error }).toEqual({ owned: 0, error: null });
  });

  test("an innocent event is not parked when relays are killed with other windows in flight", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink();
    const innocent = draft("i", 1);
    await bench.add(innocent);
    for (let life = 0; life < 3; life++) {
      let dead = false;
      const part = <T extends object>(whole: T): T =>
        new Proxy(whole, {
          get: (t, k) => {
            const call = Reflect.get(t, k) as (...v: unknown[]) => Promise<unknown>;
            return (...v: unknown[]) => (dead ? never : call(...v).then((r) => (dead ? never : r)));
          },
        });
      // A broker that takes 300 ms; the process is killed while another window is in flight with the innocent event's.
      const relay = createRelay({
        ...base(bench, clock),
        store: { ...bench.store, outbox: part(bench.store.outbox), leases: part(bench.store.leases) },
        sink: {
          ...sink,
          publish: async (b, s) => {
            await clock.sleep(300);
            return dead ? never : sink.publish(b, s);
          },
        },
        batch: 100,
        relayId: `r${life}`,
        route: "{aggregate_id}",
      });
      void relay.start();
      let inFlight = 0;
      for (let i = 0; i < 400; i++) {
        await clock.advance(10);
        const mine = await bench.operator.show(innocent.id);
        if (mine!.owner === `r${life}` && inFlight === 0)
          await bench.add(...Array.from({ length: 20 }, (_, n) => draft(`n${life}-${n}`, 1)));
        inFlight = (await bench.operator.status()).relays.find((r) => r.relay === `r${life}`)?.window ?? 0;
        if (mine!.owner === `r${life}` && inFlight > 1) break;
      }
      dead = true;
      await clock.advance(1_500);
    }
    const last = createRelay({ ...base(bench, clock), sink });
    void last.start();
    await clock.advance(10_000);
    const r = await bench.operator.show(innocent.id);
    expect({ state: r!.state, error: r!.lastError }).toEqual({ state: "PUBLISHED", error: null });
    await last.stop();
  });
});
