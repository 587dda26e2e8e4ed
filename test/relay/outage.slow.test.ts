import { describe, expect, test } from "vitest";
import { createRelay } from "../../src/relay/create-relay.ts";
import { benches, draft } from "../support/outbox.ts";
import { firstDeliveries, type Script } from "../support/scripted-sink.ts";
import { scene } from "./scene.ts";

describe.each(Object.entries(benches))("%s: while the broker is away", (_name, open) => {
  test("for a day, no attempt is spent, and order holds when it ends", async () => {
    let away = true;
    const script: Script = {
      verdict: () => (away ? "lost-before" : "stored"),
      probe: () => {
        if (away) throw new Error("connection refused");
      },
    };
    // A day of polls takes long even without waiting: the relay looks less often than it would by default.
    await using s = await scene(open, script, { leaseMs: 1_800_000, publishTimeoutMs: 10_000, pollIntervalMs: 30_000 });
    const add = async (n: number): Promise<void> => s.bench.add(...["a", "b", "c"].map((aggregate) => draft(aggregate, n)));
    for (let n = 1; n <= 24; n++) {
      await add(n);
      await s.clock.advance(3_600_000);
    }
    const { states, breakers } = await s.bench.operator.status();
    expect(states).toMatchObject({ PUBLISHED: 0, FAILED: 0, DEAD: 0 });
    expect(breakers).toMatchObject([{ destination: "order.events", aggregates: 3 }]);
    for (const record of await s.bench.operator.list({ limit: 100 })) expect(record.retryCount).toBe(0);
    expect(s.events.filter(({ type }) => type === "destination.opened")).toHaveLength(1);
    away = false;
    await s.clock.advance(120_000);
    expect([...firstDeliveries(s.sink.log).values()]).toEqual(Array.from({ length: 3 }, () => Array.from({ length: 24 }, (_, i) => i + 1)));
    const after = await s.bench.operator.status();
    expect(after.states).toMatchObject({ PUBLISHED: 72, BLOCKED: 0 });
    expect(after.breakers).toEqual([]);
    expect(after.holds.aggregates).toBe(0);
  });

  test("for one topic only, events of the others are published without delay", async () => {
    let broken = true;
    const script: Script = {
      verdict: ({ topic }) => (broken && topic === "bad.events" ? "down" : "stored"),
      probe: (topic) => {
        if (broken && topic === "bad.events") throw new Error("no such topic");
      },
    };
    await using s = await scene(open, script);
    for (let n = 1; n <= 20; n++) {
      await s.bench.add(
        draft("x", n, { aggregateType: "Bad" }),
        draft(`y-${n}`, n, { aggregateType: "Bad" }),
        draft("z", n, { aggregateType: "Good" }),
      );
      await s.clock.advance(100);
      expect(s.sink.log.filter(({ topic }) => topic === "good.events")).toHaveLength(n);
    }
    expect((await s.bench.operator.status()).states).toMatchObject({ BLOCKED: 40, PUBLISHED: 20, FAILED: 0, DEAD: 0 });
    for (const record of await s.bench.operator.list({ limit: 100 })) expect(record.retryCount).toBe(0);
    broken = false;
    await s.clock.advance(60_000);
    expect(s.sink.log.filter(({ aggregate }) => aggregate === "Bad\0x").map(({ n }) => n)).toEqual(
      Array.from({ length: 20 }, (_, i) => i + 1),
    );
    expect((await s.bench.operator.status()).states).toMatchObject({ BLOCKED: 0, PUBLISHED: 60 });
  });

  test("an event that is refused on trial shows that the destination answers: the others do not wait any longer", async () => {
    let away = true;
    const bad = draft("bad", 1);
    const script: Script = { verdict: ({ envelope }) => (away ? "down" : envelope.id === bad.id ? "refused-for-good" : "stored") };
    await using s = await scene(open, script, { probeMs: { first: 100, last: 200 } });
    await s.bench.add(bad);
    await s.clock.advance(50);
    await s.bench.add(...Array.from({ length: 20 }, (_, i) => draft(`good-${i}`, 1)));
    await s.clock.advance(50);
    away = false;
    await s.clock.advance(1_000);
    expect((await s.bench.operator.status()).states).toMatchObject({ DEAD: 1, PUBLISHED: 20, BLOCKED: 0 });
  });

  test("under load, it is opened and closed once, and nothing is held again after it is well", async () => {
    let away = false;
    const script: Script = {
      verdict: () => (away ? "down" : "stored"),
      probe: () => {
        if (away) throw new Error("away");
      },
      before: () => s.clock.sleep(5),
    };
    await using s = await scene(open, script, { batch: 5, batchesInFlight: 4, probeMs: { first: 100, last: 200 } });
    for (let n = 1; n <= 150; n++) {
      away = n > 30 && n < 60;
      await s.bench.add(...Array.from({ length: 6 }, (_, i) => draft(`a-${i}`, n)));
      await s.clock.advance(20);
    }
    await s.clock.advance(2_000);
    expect((await s.bench.operator.status()).states).toMatchObject({ PUBLISHED: 900, BLOCKED: 0, PENDING: 0 });
    const told = s.events.filter(({ type }) => type === "destination.opened" || type === "destination.closed").map(({ type }) => type);
    expect(told).toEqual(["destination.opened", "destination.closed"]);
  });

  test("a relay that takes over finds the held destination well again and lets everything go", async () => {
    let away = true;
    const script: Script = { verdict: () => (away ? "down" : "stored") };
    await using s = await scene(open, script);
    await s.bench.add(...[1, 2, 3].map((n) => draft("a", n)));
    await s.clock.advance(300);
    expect((await s.bench.operator.status()).states.BLOCKED).toBe(3);
    const drained = s.relay.drain();
    await s.clock.advance(1_000);
    await drained;
    away = false;
    const heir = createRelay({ store: s.bench.store, sink: s.sink, clock: s.clock });
    const started = heir.start();
    await s.clock.advance(3_000);
    await started;
    expect(s.sink.log.map(({ n }) => n)).toEqual([1, 2, 3]);
    await heir.stop();
  });
});

describe.each(Object.entries(benches))("%s: an event that breaks the link whenever it is sent", (_name, open) => {
  test("is counted as refused once others have shown that the destination is well, and dies; the others flow", async () => {
    const poison = draft("bad", 1);
    const script: Script = { verdict: ({ envelope }) => (envelope.id === poison.id ? "lost-before" : "stored") };
    await using s = await scene(open, script, { retry: { delaysMs: [100, 100], jitter: 0 }, probeMs: { first: 50, last: 200 } });
    await s.bench.add(poison, draft("bad", 2));
    for (let n = 1; n <= 600 && (await s.bench.stateOf(poison.id)) !== "DEAD"; n++) {
      await s.bench.add(draft(`good-${n % 7}`, Math.ceil(n / 7)));
      await s.clock.advance(100);
    }
    expect(await s.bench.stateOf(poison.id)).toBe("DEAD");
    await s.clock.advance(5_000);
    const { states } = await s.bench.operator.status();
    expect(states).toMatchObject({ DEAD: 1, BLOCKED: 1, PENDING: 0, FAILED: 0 });
  });

  test("spends nothing while nothing else shows that the destination is well", async () => {
    const only = draft("a", 1);
    await using s = await scene(open, { verdict: () => "lost-before" }, { probeMs: { first: 50, last: 200 } });
    await s.bench.add(only);
    await s.clock.advance(120_000);
    expect((await s.bench.operator.show(only.id))!).toMatchObject({ retryCount: 0, state: "BLOCKED" });
  });
});
