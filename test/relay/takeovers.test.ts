import { describe, expect, test } from "vitest";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay, type RelayOptions } from "../../src/relay/create-relay.ts";
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

describe.each(Object.entries(benches))("%s", (name, open) => {
  test("a late settle of an old epoch does not drop a lane that was won anew", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    const sink = scriptedSink();
    const events: PathEvent[] = [];
    let settles = 0;
    let letGo: () => void = () => undefined;
    const gate = new Promise<void>((r) => (letGo = r));
    // A: its renewals fail for a while and one settle takes long (a locked file)
    let renewFails = false;
    const a = createRelay({
      ...base(bench, clock, events),
      sink,
      relayId: "a",
      store: {
        ...bench.store,
        leases: {
          ...bench.store.leases,
          renew: async (...of) => {
            if (renewFails) throw new Error("locked");
            return bench.store.leases.renew(...of);
          },
        },
        outbox: {
          ...bench.store.outbox,
          settle: async (r, w, o) => {
            if (settles++ === 0) await gate;
            return bench.store.outbox.settle(r, w, o);
          },
        },
      },
    });
    void a.start();
    await clock.advance(100);
    renewFails = true;
    await bench.add(draft("x", 1));
    await clock.advance(100);
    await clock.advance(1_500); // lease lapses
    const b = createRelay({ ...base(bench, clock), sink, relayId: "b" });
    void b.start();
    await clock.advance(1_000);
    const drained = b.drain();
    await clock.advance(1_500);
    await drained;
    renewFails = false;
    await clock.advance(1_500); // a wins the lanes again, with new epochs
    letGo();
    await clock.advance(500);
    await bench.add(draft("x", 2));
    await clock.advance(30_000);
    expect(new Set(ns(sink, "x"))).toEqual(new Set([1, 2]));
    await a.stop();
  });

  const run3 = async (
    options: Partial<RelayOptions>,
    verdict: (n: number, tries: number) => "stored" | "refused" | "down",
    act?: (bench: Bench, clock: ManualClock, ids: string[]) => Promise<void>,
  ) => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    let tries = 0;
    const sink = scriptedSink({
      verdict: ({ envelope }) => verdict((JSON.parse(Buffer.from(envelope.data).toString()) as { n: number }).n, tries++),
    });
    const ds = [draft("x", 1), draft("x", 2, { payload: { n: 2, big: "x".repeat(20_000) } }), draft("x", 3)];
    await bench.add(...ds);
    const relay = createRelay({ ...base(bench, clock), sink, ...options });
    void relay.start();
    await clock.advance(10_000);
    const states = await Promise.all(ds.map((d) => bench.stateOf(d.id)));
    if (act)
      await act(
        bench,
        clock,
        ds.map((d) => d.id),
      );
    const states2 = await Promise.all(ds.map((d) => bench.stateOf(d.id)));
    await relay.stop();
    return { order: ns(sink, "x"), states, states2, clock };
  };
  test("skip: 1 refused once, 2 too large, 3 waits for 1", async () => {
    const { order } = await run3({ skip: ["Order"] }, (_n, tries) => (tries === 0 ? "refused" : "stored"));
    expect(order).toEqual([1, 3]);
  });
  test("block: 1 refused once, 2 too large: 1 is retried by the schedule", async () => {
    const { states, order } = await run3({}, (_n, tries) => (tries === 0 ? "refused" : "stored"));
    expect(order).toEqual([1]);
    expect(states).toEqual(["PUBLISHED", "DEAD", "BLOCKED"]);
  });
  test("block, larger limit after redrive: 1 still goes before 2", async () => {
    const clock = manualClock(start);
    await using bench = await open(clock);
    let tries = 0;
    const sink = scriptedSink({ verdict: () => (tries++ === 0 ? "refused" : "stored") });
    const ds = [draft("x", 1), draft("x", 2, { payload: { n: 2, big: "x".repeat(20_000) } }), draft("x", 3)];
    await bench.add(...ds);
    const one = createRelay({ ...base(bench, clock), sink });
    void one.start();
    await clock.advance(500);
    const d = one.drain();
    await clock.advance(1_500);
    await d;
    await bench.operator.redrive({}, { who: "me", dryRun: false });
    const two = createRelay({ ...base(bench, clock), sink: { ...sink, can: { maxBytes: 1_000_000 } } });
    void two.start();
    await clock.advance(10_000);
    expect(ns(sink, "x")).toEqual([1, 2, 3]);
    await two.stop();
  });
  test("outage of 1's destination with a bad 2: 1 goes on when it ends", async () => {
    const { states, order } = await run3({ probeMs: { first: 100, last: 500 } }, (_n, tries) => (tries === 0 ? "down" : "stored"));
    expect(order).toEqual([1]);
    expect(states).toEqual(["PUBLISHED", "DEAD", "BLOCKED"]);
  });
});
