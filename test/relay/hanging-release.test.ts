import { expect, test } from "vitest";
import { createRelay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

test("a relay whose release never ends gives its lanes to another, who lets go what waits", async () => {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  await using bench = await benches["memory"]!(clock);
  let away = true;
  const sink = scriptedSink({
    verdict: () => (away ? "down" : "stored"),
    probe: () => {
      if (away) throw new Error("no such topic");
    },
  });
  let hanging = 0;
  const start = async (options: Partial<RelayOptions> = {}) => {
    // The first one has every lane, and gives none to the second while it lives.
    const settings = { coordination: "leader", leaseMs: 2_000, probeMs: { first: 50, last: 100 } } as const;
    const relay = createRelay({ store: bench.store, sink, clock, observe: false, ...settings, ...options });
    await relay.start();
    return relay;
  };
  const release = (): Promise<number> => {
    hanging++;
    return new Promise(() => undefined);
  };
  const hung = await start({ store: { ...bench.store, outbox: { ...bench.store.outbox, release } } });
  await bench.add(draft("a", 1));
  await clock.advance(500);
  expect((await bench.operator.status()).breakers).toMatchObject([{ destination: "order.events", aggregates: 1 }]);
  away = false;
  await clock.advance(500);
  expect(hanging).toBe(1);
  const other = await start();
  await clock.advance(8_000);
  expect((await bench.operator.status()).states).toMatchObject({ PUBLISHED: 1, BLOCKED: 0 });
  const stopped = Promise.all([hung.stop(), other.stop()]);
  await clock.advance(3_000);
  await stopped;
});
