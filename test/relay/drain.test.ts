import { expect, test } from "vitest";
import type { LeaseStore } from "../../src/contracts/lease-store.ts";
import type { OutboxStore } from "../../src/contracts/outbox-store.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

test("a drain finishes what is being published, and gives back the windows that wait behind it", async () => {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  await using bench = await benches["memory"]!(clock);
  const sink = scriptedSink({ before: (_, signal) => clock.sleep(2_000, signal) });
  for (const n of [1, 2, 3]) await bench.add(draft("a", n));
  const relay = createRelay({ store: bench.store, sink, clock, batch: 1, batchesInFlight: 3, leaseMs: 10_000, pollIntervalMs: 100 });
  await relay.start();
  await clock.advance(1_000);
  expect(sink.batches).toBe(1);
  const drained = relay.drain();
  await clock.advance(10_000);
  await drained;
  expect(sink.log).toHaveLength(1);
  expect((await bench.operator.status()).states).toMatchObject({ PUBLISHED: 1, PENDING: 2, PUBLISHING: 0 });
});

const away = (): Promise<never> => Promise.reject(new Error("the store is away"));
const silent = (): Promise<never> => new Promise(() => undefined);

test.each([
  ["settles fail", { settle: away }],
  ["settles are never answered", { settle: silent }],
  ["claims are never answered", { claim: silent }],
])("a drain that settles nothing for a publish and a lease gives up, and says so, when %s", async (_, broken) => {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  await using bench = await benches["memory"]!(clock);
  await bench.add(draft("a", 1));
  const outbox: OutboxStore = { ...bench.store.outbox, ...broken };
  const limits = { leaseMs: 10_000, publishTimeoutMs: 4_000 };
  const relay = createRelay({
    store: { ...bench.store, outbox },
    sink: scriptedSink(),
    clock,
    housekeeping: false,
    observe: false,
    ...limits,
  });
  await relay.start();
  await clock.advance(1_000);
  let drained = false;
  const draining = relay.drain().then(() => (drained = true));
  await clock.advance(14_000 - 1);
  expect(drained).toBe(false);
  await clock.advance(1 + 1_000);
  expect(drained).toBe(true);
  await draining;
  await expect(relay.stopped).rejects.toThrow("nothing could be settled or given back for 14 s");
  await expect(relay.stopped).rejects.toMatchObject({ code: "STOPPED" });
});

test("a drain on a slow store goes on for as long as it settles something", async () => {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  await using bench = await benches["memory"]!(clock);
  const { outbox, leases } = bench.store;
  const slowMs = 9_000;
  const settle: OutboxStore["settle"] = async (...given) => {
    await clock.sleep(slowMs);
    return outbox.settle(...given);
  };
  const leave: LeaseStore["leave"] = async (relay) => {
    await clock.sleep(slowMs);
    return leases.leave(relay);
  };
  await bench.add(draft("a", 1));
  const store = { ...bench.store, outbox: { ...outbox, settle }, leases: { ...leases, leave } };
  const limits = { leaseMs: 10_000, publishTimeoutMs: 1_000 };
  const relay = createRelay({ store, sink: scriptedSink(), clock, housekeeping: false, observe: false, ...limits });
  await relay.start();
  await clock.advance(100);
  const drained = relay.drain();
  await clock.advance(2 * slowMs);
  await drained;
  await relay.stopped;
  const { states, relays } = await bench.operator.status();
  expect(states).toMatchObject({ PUBLISHED: 1, PUBLISHING: 0 });
  expect(relays).toEqual([]);
});

test("a run for cron ends when the store settles nothing", async () => {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  await using bench = await benches["memory"]!(clock);
  await bench.add(draft("a", 1));
  const store = { ...bench.store, outbox: { ...bench.store.outbox, settle: away } };
  const relay = createRelay({ store, sink: scriptedSink(), clock, leaseMs: 10_000, housekeeping: false, observe: false });
  const ended = expect(relay.runOnce()).rejects.toThrow("the store is away");
  await clock.advance(60_000);
  await ended;
});
