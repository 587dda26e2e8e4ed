import { expect, test } from "vitest";
import type { OutboxStore } from "../../src/contracts/outbox-store.ts";
import type { Draft } from "../../src/core/event.ts";
import { createRelay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { distantSink } from "../support/distant-sink.ts";
import { benches, draft } from "../support/outbox.ts";
import { start } from "./scene.ts";

const each = (name: string, count: number): Draft[] => Array.from({ length: count }, (_, n) => draft(`${name}-${n}`, 1));
const backlog = (aggregate: string, count: number): Draft[] => Array.from({ length: count }, (_, n) => draft(aggregate, n + 1));
const every = Array.from({ length: 64 }, (_, lane) => lane);
const all = { limit: 1_000, bytes: 2 ** 30, largest: 2 ** 30, open: [], narrow: false };
const roundTripMs = 100;

/** A store where relays have died, one after the other, and a healthy relay that takes over: its broker is far away. */
async function heir(options: Partial<RelayOptions> = {}) {
  const clock = manualClock(start);
  const bench = await benches["memory"]!(clock);
  const { leases, outbox } = bench.store;
  const claims: { readonly narrow: boolean; readonly count: number; readonly at: number }[] = [];
  const claim: OutboxStore["claim"] = async (holding, request) => {
    const window = await outbox.claim(holding, request);
    claims.push({ narrow: request.narrow, count: window.claims.length, at: clock.monotonic() });
    return window;
  };
  const sink = distantSink({ clock, roundTripMs });
  // No hint tells it of an event: all that it finds, it finds by polling.
  const { wake: _, ...store } = bench.store;
  const relay = createRelay({
    store: { ...store, outbox: { ...outbox, claim } },
    sink,
    clock,
    housekeeping: false,
    observe: false,
    pollIntervalMs: 100,
    ...options,
  });
  const sent = (drafts: readonly Draft[]): boolean => drafts.every(({ id }) => sink.log.some((entry) => entry.id === id));
  let begun = 0;
  return {
    bench,
    clock,
    claims,
    sink,
    /** A relay dies with all that is claimable in its window. */
    async death(name: string): Promise<void> {
      await leases.renew(name, 1_000);
      const lanes = await leases.take(name, every);
      await outbox.claim({ relay: name, lanes }, all);
      await clock.advance(2_000);
    },
    async begin(): Promise<void> {
      begun = clock.monotonic();
      await relay.start();
    },
    /** How long after the relay's start the last of them was sent. */
    async msTo(drafts: readonly Draft[], mostMs = 60_000): Promise<number> {
      while (!sent(drafts) && clock.monotonic() - begun < mostMs) await clock.advance(10);
      return clock.monotonic() - begun;
    },
    async [Symbol.asyncDispose]() {
      await relay.stop();
      await bench[Symbol.asyncDispose]();
    },
  };
}

const narrowOnes = ({ claims }: Pick<Awaited<ReturnType<typeof heir>>, "claims">): readonly number[] =>
  claims.filter(({ narrow, count }) => narrow && count > 0).map(({ count }) => count);

test("suspects go a tenth at a time, one round trip after the other", async () => {
  await using scene = await heir();
  const suspects = each("suspect", 40);
  await scene.bench.add(...suspects);
  await scene.death("dead");
  await scene.begin();
  expect(await scene.msTo(suspects)).toBeLessThan(12 * roundTripMs);
  expect(narrowOnes(scene)).toEqual(Array<number>(10).fill(4));
});

test("a later death with few events in hand does not make the suspects of an earlier one go alone", async () => {
  await using scene = await heir();
  const many = each("many", 400);
  const few = each("few", 3);
  await scene.bench.add(...many);
  await scene.death("first");
  await scene.bench.add(...few);
  await scene.death("second");
  await scene.begin();
  expect(await scene.msTo([...many, ...few])).toBeLessThan(15 * roundTripMs);
  expect(narrowOnes(scene)).toEqual([...Array<number>(10).fill(40), 1, 1, 1]);
});

test("a hot aggregate's backlog keeps suspects waiting for its turns only, and stays in order", async () => {
  await using scene = await heir();
  const suspects = each("suspect", 40);
  await scene.bench.add(...suspects);
  await scene.death("dead");
  const hot = backlog("hot", 300);
  await scene.bench.add(...hot);
  await scene.begin();
  // Ten narrow windows of a round trip, and between them the hot aggregate's turns: a quarter of a second, and the round trip under way.
  expect(await scene.msTo(suspects)).toBeLessThan(10 * (roundTripMs + 250 + 2 * roundTripMs));
  const early = scene.sink.log.filter(({ aggregate }) => aggregate.endsWith("hot")).length;
  expect(early, "it goes on meanwhile").toBeGreaterThan(20);
  await scene.msTo(hot);
  expect(scene.sink.log.filter(({ aggregate }) => aggregate.endsWith("hot")).map(({ n }) => n)).toEqual(hot.map((_, n) => n + 1));
  expect(scene.sink.sent.length, "nothing is sent twice").toBe(suspects.length + hot.length);
});

test("suspects of one hot aggregate keep others waiting for their turns only, and stay in order", async () => {
  await using scene = await heir();
  const suspects = backlog("hot", 300);
  await scene.bench.add(...suspects);
  await scene.death("dead");
  await scene.begin();
  await scene.clock.advance(200); // a narrow window is on its way
  const others = each("other", 5);
  await scene.bench.add(...others);
  expect(await scene.msTo(others), "a turn of a second, and the round trips under way").toBeLessThan(1_600);
  await scene.msTo(suspects);
  expect(scene.sink.log.filter(({ aggregate }) => aggregate.endsWith("hot")).map(({ n }) => n)).toEqual(suspects.map((_, n) => n + 1));
  expect(scene.sink.sent.length, "nothing is sent twice").toBe(suspects.length + others.length);
});

test("no idle wait lies between suspects, or before their followers", async () => {
  await using scene = await heir({ pollIntervalMs: 10_000 });
  const suspects = each("suspect", 40);
  await scene.bench.add(...suspects);
  await scene.death("dead");
  const one = draft("other", 1);
  const followers = suspects.map((_, n) => draft(`suspect-${n}`, 2));
  await scene.bench.add(one, ...followers);
  await scene.begin();
  await scene.msTo([...suspects, one, ...followers]);
  const times = scene.claims.map(({ at }) => at);
  expect(times.length).toBeGreaterThan(20);
  const waits = times.slice(1).map((at, n) => at - times[n]!);
  expect(Math.max(...waits), "each claim follows the round trip of the last").toBeLessThan(1.5 * roundTripMs);
});
