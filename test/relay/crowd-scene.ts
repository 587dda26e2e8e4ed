import { expect } from "vitest";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { benches, draft } from "../support/outbox.ts";
import { scriptedSink, type Script } from "../support/scripted-sink.ts";

/** Topics that may have a record of their own although this relay has stored nothing there. */
export const strangers = 32;
export const page = 32;
export const invented = 2_000;
/** As docs/promises.md has it: the longest wait between two looks through the crowd, and a second for each page of it. */
export const backWithinMs = (topics: number): number => 30_000 + (topics / page) * 1_100;

/** A relay on a store of 2,000 events that each invent a topic. The test says which topics are away. */
export async function scene(
  { store = "memory", ...script }: Script & { readonly store?: "memory" | "sqlite" },
  options: Partial<RelayOptions> = {},
) {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  const bench = await benches[store]!(clock);
  const probes: string[] = [];
  const sink = scriptedSink({
    ...script,
    probe: (topic) => {
      probes.push(topic);
      script.probe?.(topic);
    },
  });
  const told: PathEvent[] = [];
  const calls = { waitingFor: 0, release: 0 };
  const outbox: typeof bench.store.outbox = {
    ...bench.store.outbox,
    waitingFor: (...asked) => (calls.waitingFor++, bench.store.outbox.waitingFor(...asked)),
    release: (...asked) => (calls.release++, bench.store.outbox.release(...asked)),
  };
  const relayOf = () =>
    createRelay({
      store: { ...bench.store, outbox },
      ...{ sink, clock, housekeeping: false, observe: (event: PathEvent) => void told.push(event), ...options },
    });
  const states = async () => (await bench.operator.status()).states;
  const records = async () => (await bench.operator.status()).breakers;
  const invent = (count = invented) =>
    bench.add(...Array.from({ length: count }, (_, n) => draft(`a${n}`, 0, { aggregateType: `Invented${n}` })));
  return {
    ...{ clock, bench, probes, sink, told, calls, relayOf, states, records, invent },
    [Symbol.asyncDispose]: () => bench[Symbol.asyncDispose](),
  };
}

/** A broker is away, with an event for each of so many topics in the outbox, and comes back. */
export async function awayWith(topics: number): Promise<void> {
  let away = true;
  await using it = await scene({
    verdict: () => (away ? "lost-before" : "stored"),
    probe: () => {
      if (away) throw new Error("connection refused");
    },
  });
  const relay = it.relayOf();
  await relay.start();
  await it.invent(topics);
  await it.clock.advance(300_000);
  expect(await it.states()).toMatchObject({ DEAD: 0, FAILED: 0, PUBLISHED: 0, BLOCKED: topics });
  expect((await it.records()).length).toBeLessThanOrEqual(strangers + 1);
  away = false;
  await it.clock.advance(backWithinMs(topics));
  expect(await it.states()).toMatchObject({ DEAD: 0, FAILED: 0, PUBLISHED: topics });
  expect(await it.records()).toEqual([]);
  const stopped = relay.stop();
  await it.clock.advance(3_000);
  await stopped;
}
