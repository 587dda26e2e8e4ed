import { expect, test } from "vitest";
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
