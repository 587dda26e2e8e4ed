import { expect, test } from "vitest";
import type { OutboxStore } from "../../src/contracts/outbox-store.ts";
import { createWake, type Wake } from "../../src/core/wake.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

/** A relay that polls every ten seconds, and the limits of its claims. With a wake of its own, no commit hints to it. */
async function waiting({ wake: own }: { readonly wake?: Wake } = {}) {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  const bench = await benches["memory"]!(clock);
  const limits: number[] = [];
  const { outbox } = bench.store;
  const wake = own ?? bench.store.wake;
  const claim: OutboxStore["claim"] = (holding, request) => {
    limits.push(request.limit);
    return outbox.claim(holding, request);
  };
  const sink = scriptedSink({});
  const store = { ...bench.store, wake, outbox: { ...outbox, claim } };
  const relay = createRelay({ store, sink, clock, pollIntervalMs: 10_000, housekeeping: false });
  await relay.start();
  await clock.advance(1_000);
  limits.splice(0);
  return {
    ...{ bench, clock, limits, sink, wake },
    async [Symbol.asyncDispose]() {
      const stopped = relay.stop();
      await clock.advance(3_000);
      await stopped;
      await bench[Symbol.asyncDispose]();
    },
  };
}

test("a hint is one claim, whether or not it finds something", async () => {
  await using relay = await waiting();
  relay.wake.notify();
  await relay.clock.advance(1_000);
  expect(relay.limits.splice(0)).toHaveLength(1);
  await relay.bench.add(draft("order-1", 1));
  await relay.clock.advance(1_000);
  expect(relay.sink.log).toHaveLength(1);
  expect(relay.limits.splice(0)).toHaveLength(1);
});

test("after several events the relay looks once more, soon, and then waits", async () => {
  await using relay = await waiting();
  await relay.bench.add(draft("order-1", 1), draft("order-2", 2));
  await relay.clock.advance(1_000);
  expect(relay.sink.log).toHaveLength(2);
  expect(relay.limits).toHaveLength(2);
});

test("a long run of windows outlasts one look that finds nothing, and no more", async () => {
  await using relay = await waiting({ wake: createWake() });
  const looks = 10;
  const betweenMs = 7;
  let n = 0;
  const next = () => relay.bench.add(draft("order-1", ++n));
  await next();
  await next();
  relay.wake.notify();
  await relay.clock.advance(1);
  for (let look = 1; look < looks; look++) {
    await next();
    await relay.clock.advance(betweenMs);
    expect(relay.sink.log).toHaveLength(n);
  }
  await relay.clock.advance(betweenMs);
  await next();
  await relay.clock.advance(betweenMs);
  expect(relay.sink.log).toHaveLength(n);
  await relay.clock.advance(2 * betweenMs);
  relay.limits.splice(0);
  await next();
  await relay.clock.advance(1_000);
  expect(relay.limits).toEqual([]);
});

test("windows widen while there is a backlog, up to the batch, and are small again after it", async () => {
  await using relay = await waiting();
  await relay.bench.add(...Array.from({ length: 3_000 }, (_, n) => draft(`order-${n}`, n)));
  await relay.clock.advance(9_000);
  expect(relay.sink.log).toHaveLength(3_000);
  expect(relay.limits.slice(0, 4)).toEqual([250, 500, 1_000, 1_000]);
  relay.limits.splice(0);
  await relay.bench.add(draft("order-1", 1));
  await relay.clock.advance(1_000);
  expect(relay.limits[0]).toBe(250);
});
