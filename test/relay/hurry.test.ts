import { expect, test } from "vitest";
import { createRelay } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

test("a relay whose store was slow until its lease had almost run out begins no publish that it would have to call off", async () => {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  await using bench = await benches["memory"]!(clock);
  // It stores at once, and answers a little later: a publish that is called off before leaves a copy behind.
  const sink = scriptedSink({
    before: async (_, signal) => clock.sleep(50, signal),
  });
  const hurried: number[] = [];
  const publish: typeof sink.publish = async (batch, signal) => {
    const began = clock.monotonic();
    const results = await sink.publish(batch, signal);
    if (!signal.aborted) return results;
    hurried.push(clock.monotonic() - began);
    return results.map(() => ({ status: "unknown", error: new Error("called off") }));
  };
  /** Claims are not answered before this, and renewals not before a while later. */
  let answersAt = 0;
  let renewedAt = 0;
  const late = async <T>(work: () => Promise<T>, moreMs: number): Promise<T> => {
    const result = await work();
    if (clock.monotonic() < answersAt) await clock.sleep(answersAt + moreMs - clock.monotonic());
    return result;
  };
  const { outbox, leases } = bench.store;
  const store = {
    ...bench.store,
    outbox: { ...outbox, claim: (...args: Parameters<typeof outbox.claim>) => late(() => outbox.claim(...args), 0) },
    leases: {
      ...leases,
      renew: (...args: Parameters<typeof leases.renew>) => {
        if (clock.monotonic() > answersAt) renewedAt = clock.monotonic();
        return late(() => leases.renew(...args), 500);
      },
    },
  };
  const relay = createRelay({ store, sink: { ...sink, publish }, clock, leaseMs: 10_000, pollIntervalMs: 100 });
  await relay.start();
  await clock.advance(5_000);
  for (let round = 0; round < 8; round++) {
    // The lease is trusted for four fifths of it: that is so much time, and not enough, for the answer.
    answersAt = renewedAt + 8_000 - 5 * round;
    await bench.add(draft("a", round + 1));
    await clock.advance(20_000);
  }
  expect(hurried).toEqual([]);
  expect(sink.log.map(({ n }) => n)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  const stopped = relay.stop();
  await clock.advance(3_000);
  await stopped;
});

test.each([1, 2, 3, 4])(
  "nothing is sent by a relay whose lease was over at any of its looks at the clock before the send: look %i",
  async (nth) => {
    const clock = manualClock(Date.UTC(2030, 0, 1));
    await using bench = await benches["memory"]!(clock);
    const leaseMs = 10_000;
    let looks = 0;
    let frozenMs = 0;
    let leasedUntil = 0;
    let seen = 0;
    const monotonic = (): number => {
      if (looks > 0 && --looks === 0) frozenMs = 6 * leaseMs;
      return (seen = clock.monotonic() + frozenMs);
    };
    const { leases } = bench.store;
    const renew: typeof leases.renew = async (...args) => {
      await leases.renew(...args);
      leasedUntil = clock.monotonic() + frozenMs + leaseMs;
    };
    const lateMs: number[] = [];
    const sink = scriptedSink({ before: () => void (seen >= leasedUntil && lateMs.push(seen - leasedUntil)) });
    let frozen = false;
    const failpoints = {
      async hit(point: string): Promise<void> {
        if (point !== "before-publish" || frozen) return;
        frozen = true;
        looks = nth;
      },
    };
    const store = { ...bench.store, leases: { ...leases, renew } };
    const relay = createRelay({ store, sink, clock: { ...clock, monotonic }, failpoints, leaseMs, pollIntervalMs: 100 });
    await relay.start();
    await bench.add(draft("a", 1));
    await clock.advance(30_000);
    expect(frozenMs).toBeGreaterThan(0);
    expect(lateMs).toEqual([]);
    expect(sink.log.map(({ n }) => n)).toEqual([1]);
    const stopped = relay.stop();
    await clock.advance(3_000);
    await stopped;
  },
);
