import { expect, test } from "vitest";
import type { ClaimRequest, OutboxStore } from "../../src/contracts/outbox-store.ts";
import { turn } from "../../src/core/clock.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { collect } from "../support/collect.ts";
import { benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

const windowBytes = 10_000;

test.each([
  ["many of a window", 1_000],
  ["larger than a window", 25_000],
])("what a relay holds is bounded by bytes, whatever its events are: %s", async (_, bytesEach) => {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  await using bench = await benches["memory"]!(clock);
  const requests: ClaimRequest[] = [];
  const { outbox } = bench.store;
  let held = 0;
  let most = 0;
  const settle: OutboxStore["settle"] = async (relay, window, outcomes) => {
    const report = await outbox.settle(relay, window, outcomes);
    held -= outcomes.length * bytesEach;
    return report;
  };
  const claim: OutboxStore["claim"] = async (holding, request) => {
    requests.push(request);
    const window = await outbox.claim(holding, request);
    for (const { envelope } of window.claims) held += envelope.data.byteLength;
    most = Math.max(most, held);
    return window;
  };
  const read: OutboxStore["payload"] = async (claim, signal) => {
    held += claim.unread!;
    most = Math.max(most, held);
    return outbox.payload(claim, signal);
  };
  const sink = { ...scriptedSink({ before: () => clock.sleep(50) }), can: { maxBytes: 100_000 } };
  const relay = createRelay({
    store: { ...bench.store, outbox: { ...outbox, claim, payload: read, settle } },
    sink,
    clock,
    windowBytes,
    housekeeping: false,
  });
  await relay.start();
  const empty = JSON.stringify({ n: 1, x: "" }).length;
  const payload = (n: number) => ({ n, x: "x".repeat(bytesEach - empty - String(n).length + 1) });
  await bench.add(...Array.from({ length: 60 }, (_, n) => draft(`order-${n}`, n, { payload: payload(n) })));
  await clock.advance(20_000);
  expect(sink.log).toHaveLength(60);
  expect(new Set(requests.map(({ bytes, largest }) => `${bytes} ${largest}`))).toEqual(new Set([`${windowBytes} 100000`]));
  // A window that is beyond the bound is one event, and the windows before it have left room for one of the bound.
  expect(most).toBeLessThanOrEqual(Math.max(3 * windowBytes, 2 * windowBytes + bytesEach));
  expect(most).toBeGreaterThanOrEqual(windowBytes);
  const stopped = relay.stop();
  await clock.advance(3_000);
  await stopped;
});

test("what failed keeps nothing of its window in memory once it is settled, however long the backlog is", async () => {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  await using bench = await benches["memory"]!(clock);
  const { outbox } = bench.store;
  const held = new Set<WeakRef<Uint8Array>>();
  /** Every payload is a copy of its own, so that only the relay refers to it. */
  const claim: OutboxStore["claim"] = async (holding, request) => {
    const window = await outbox.claim(holding, request);
    return {
      ...window,
      claims: window.claims.map((each) => {
        const data = Uint8Array.from(each.envelope.data);
        held.add(new WeakRef(data));
        return { ...each, envelope: { ...each.envelope, data } };
      }),
    };
  };
  const reachable = (): number => {
    collect();
    return [...held].filter((each) => each.deref() !== undefined).length;
  };
  const found: number[] = [];
  const sink = scriptedSink({
    before: async () => {
      await clock.sleep(50);
      await turn(); // a reference that was followed holds its object until the job ends
      if (sink.batches % 12 === 0) found.push(reachable());
    },
    verdict: ({ envelope }) => (/[05]0$/.test(envelope.aggregateId) ? "refused" : "stored"),
  });
  const relay = createRelay({
    store: { ...bench.store, outbox: { ...outbox, claim } },
    ...{ sink, clock, batch: 20, housekeeping: false, observe: false },
  });
  await bench.add(...Array.from({ length: 1_000 }, (_, n) => draft(`order-${n}`, n)));
  await relay.start();
  await clock.advance(10_000);
  expect(sink.log.length).toBeGreaterThan(950);
  const windows = 20 * 3;
  expect(Math.max(...found), String(found)).toBeLessThanOrEqual(2 * windows);
  const stopped = relay.stop();
  await clock.advance(3_000);
  await stopped;
});
