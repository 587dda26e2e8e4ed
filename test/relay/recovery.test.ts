import { expect, test } from "vitest";
import { WaybillError } from "../../src/core/errors.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

test.each(["claim", "settle", "renew"] as const)("a %s that fails is told of each time, and once when it works again", async (step) => {
  const clock = manualClock();
  await using bench = await benches["memory"]!(clock);
  const { outbox, leases } = bench.store;
  let away = false;
  const failing = (what: typeof step): void => {
    if (away && what === step) throw new WaybillError("STORE_UNAVAILABLE", "no answer");
  };
  const heard: PathEvent[] = [];
  const relay = createRelay({
    store: {
      ...bench.store,
      outbox: {
        ...outbox,
        claim: async (...given) => (failing("claim"), outbox.claim(...given)),
        settle: async (...given) => (failing("settle"), outbox.settle(...given)),
      },
      leases: { ...leases, look: async () => (failing("renew"), leases.look()) },
    },
    ...{ sink: scriptedSink(), clock, housekeeping: false, pollIntervalMs: 20 },
    observe: (event) => void heard.push(event),
  });
  await relay.start();
  const of = <T extends PathEvent["type"]>(type: T): readonly Extract<PathEvent, { type: T }>[] =>
    heard.flatMap((event) => (event.type === type ? [event as Extract<PathEvent, { type: T }>] : []));
  away = true;
  await bench.add(draft("a", 1));
  await clock.advance(3_000);
  expect(of("relay.trouble").length).toBeGreaterThan(1);
  expect(of("relay.recovered")).toEqual([]);
  away = false;
  await clock.advance(5_000);
  expect(of("relay.recovered")).toMatchObject([{ step }]);
  expect(of("relay.recovered")[0]!.ms).toBeGreaterThan(2_000);
  await relay.stop();
});
