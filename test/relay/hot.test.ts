import { expect, test } from "vitest";
import type { OutboxStore } from "../../src/contracts/outbox-store.ts";
import { laneOf } from "../../src/core/lane.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { type Distance, distantSink } from "../support/distant-sink.ts";
import { benches, draft } from "../support/outbox.ts";

async function scene(distance: Omit<Distance, "clock">, options: Partial<RelayOptions> = {}) {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  const bench = await benches["memory"]!(clock);
  const sink = distantSink({ ...distance, clock });
  const events: PathEvent[] = [];
  const settled: number[] = [];
  const { outbox } = bench.store;
  const settle: OutboxStore["settle"] = (by, window, outcomes) => {
    settled.push(outcomes.length);
    return outbox.settle(by, window, outcomes);
  };
  const relay = createRelay({
    store: { ...bench.store, outbox: { ...outbox, settle } },
    sink,
    clock,
    housekeeping: false,
    observe: (event) => void events.push(event),
    ...options,
  });
  await relay.start();
  return {
    clock,
    bench,
    sink,
    relay,
    settled,
    numbers: (aggregate: string) => sink.log.filter((message) => message.aggregate === aggregate).map(({ n }) => n),
    opened: () => events.filter(({ type }) => type === "destination.opened"),
    async [Symbol.asyncDispose]() {
      const stopped = relay.stop();
      await clock.advance(3_000);
      await stopped;
      await bench[Symbol.asyncDispose]();
    },
  };
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n);
const many = (aggregate: string, count: number) => upTo(count).map((n) => draft(aggregate, n));

test.each([
  ["a window", 400],
  ["all windows in flight", 2_000],
])(
  "a hot aggregate with more than %s holds causes no copy, opens no breaker, and other aggregates of its topic go on past it",
  async (_, hot) => {
    await using it = await scene({ roundTripMs: 20 });
    await it.bench.add(...many("hot", hot));
    const added: number[] = [];
    for (let n = 0; it.numbers("hot").length < hot; n++) {
      added.push(it.clock.monotonic());
      await it.bench.add(draft("cold", n));
      await it.clock.advance(250);
    }
    await it.clock.advance(1_000);
    expect(it.numbers("hot")).toEqual(upTo(hot));
    expect(it.numbers("cold")).toEqual(added.map((_, n) => n));
    expect(it.opened()).toEqual([]);
    const waits = it.sink.log.filter(({ aggregate }) => aggregate === "cold").map(({ at }, n) => at - added[n]!);
    expect(Math.max(...waits)).toBeLessThan(500);
  },
);

test("a hot aggregate's backlog does not take the room of the others: many of them are published beside it", async () => {
  await using it = await scene({ roundTripMs: 20 });
  await it.bench.add(...many("hot", 6_000)); // twice what a relay may hold
  await it.clock.advance(1_000);
  const names = upTo(500).map((n) => `cold-${n}`);
  const others = names.filter((name) => laneOf("Order", name) !== laneOf("Order", "hot"));
  for (let n = 0; n < 4; n++) {
    await it.bench.add(...others.map((name) => draft(name, n)));
    await it.clock.advance(500);
  }
  for (const name of others) expect(it.numbers(name)).toEqual(upTo(4));
  expect(it.numbers("hot").length).toBeLessThan(6_000);
});

test("aggregates of every length go side by side, each in its order, over windows that share them", async () => {
  await using it = await scene({ roundTripMs: 20 }, { batch: 60, batchesInFlight: 4 });
  const lengths = [1, 2, 7, 8, 9, 17, 40, 90, 300];
  const drafts = lengths.flatMap((length) => many(`of-${length}`, length));
  const mixed = drafts.sort((a, b) => (a.payload as { n: number }).n - (b.payload as { n: number }).n);
  for (let from = 0; from < mixed.length; from += 50) await it.bench.add(...mixed.slice(from, from + 50));
  await it.clock.advance(12_000);
  for (const length of lengths) expect(it.numbers(`of-${length}`)).toEqual(upTo(length));
  expect(it.opened()).toEqual([]);
});

test("an event in the midst of a run that gets no answer is unknown after publishTimeoutMs; those before it are published, and none after it is sent", async () => {
  let lost = true;
  const drafts = many("hot", 100);
  const silent = drafts[50]!.id;
  await using it = await scene({ roundTripMs: 100, lost: ({ envelope }) => lost && envelope.id === silent }, { publishTimeoutMs: 1_000 });
  await it.bench.add(...drafts);
  await it.clock.advance(5_000 + 900);
  expect(it.opened()).toEqual([]);
  await it.clock.advance(400);
  expect(it.opened()).toHaveLength(1);
  expect(it.numbers("hot")).toEqual(upTo(50));
  expect(it.sink.sent.at(-1)).toBe(silent);
  expect(await it.bench.stateOf(drafts[49]!.id)).toBe("PUBLISHED");
  lost = false;
  await it.clock.advance(20_000);
  expect(it.numbers("hot")).toEqual(upTo(100));
});

test("an event in the midst of a run that cannot be sent dies when those before it are published, and its followers wait", async () => {
  const drafts = many("hot", 60);
  drafts[40] = draft("hot", 40, { payload: { n: 40, much: "x".repeat(20_000) } });
  await using it = await scene({ roundTripMs: 20 });
  await it.bench.add(...drafts);
  await it.clock.advance(400);
  expect(await it.bench.stateOf(drafts[0]!.id)).toBe("PUBLISHED");
  expect(await it.bench.stateOf(drafts[40].id)).toBe("PUBLISHING");
  await it.clock.advance(2_000);
  expect(it.numbers("hot")).toEqual(upTo(40));
  expect(await it.bench.stateOf(drafts[40].id)).toBe("DEAD");
  expect(await it.bench.stateOf(drafts[41]!.id)).toBe("BLOCKED");
});

test("a drain ends a run between two events: nothing is copied, and the rest goes to the next relay", async () => {
  await using it = await scene({ roundTripMs: 20 });
  await it.bench.add(...many("hot", 300));
  await it.clock.advance(1_000);
  const drained = it.relay.drain();
  await it.clock.advance(100);
  await drained;
  const done = it.numbers("hot").length;
  expect(done).toBeGreaterThan(10);
  expect(done).toBeLessThan(100);
  const next = createRelay({ store: it.bench.store, sink: it.sink, clock: it.clock, housekeeping: false });
  await next.start();
  await it.clock.advance(8_000);
  expect(it.numbers("hot")).toEqual(upTo(300));
  const stopped = next.stop();
  await it.clock.advance(2_000);
  await stopped;
});

test("events of an aggregate that are published one after the other are settled several at a time", async () => {
  await using it = await scene({ roundTripMs: 6 }); // so slow that each is a publish of its own
  await it.bench.add(...many("hot", 40));
  await it.clock.advance(1_000);
  expect(it.numbers("hot")).toEqual(upTo(40));
  expect(it.sink.calls).toEqual(upTo(40).map(() => 1));
  expect(it.settled.reduce((sum, count) => sum + count)).toBe(40);
  expect(it.settled.length).toBeLessThan(25);
});

test("while the broker answers at once a hot aggregate's events go several to a call, and one by one while it is slow", async () => {
  let roundTripMs = 0.25;
  await using it = await scene({ roundTripMs: () => roundTripMs });
  await it.bench.add(...many("hot", 200));
  await it.clock.advance(1_000);
  expect(it.numbers("hot")).toEqual(upTo(200));
  expect(Math.max(...it.sink.calls)).toBe(32);
  expect(it.sink.calls.length).toBeLessThan(20);
  roundTripMs = 11;
  it.sink.calls.length = 0;
  await it.bench.add(...upTo(50).map((n) => draft("hot", 200 + n)));
  await it.clock.advance(2_000);
  expect(it.numbers("hot")).toEqual(upTo(250));
  expect(it.sink.calls).toEqual(upTo(50).map(() => 1));
});

test("a broker that becomes slow in the midst of a long run costs one copy at most", async () => {
  let slow = false;
  await using it = await scene({ roundTripMs: () => (slow ? 400 : 0.25) }, { publishTimeoutMs: 1_000 });
  await it.bench.add(...many("hot", 300));
  while (it.numbers("hot").length < 100) await it.clock.advance(1);
  slow = true;
  await it.clock.advance(20_000);
  slow = false;
  await it.clock.advance(20_000);
  const numbers = it.numbers("hot");
  expect([...new Set(numbers)]).toEqual(upTo(300));
  expect(numbers.length).toBeLessThanOrEqual(301);
});
