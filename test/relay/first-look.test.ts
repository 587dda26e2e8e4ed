import { expect, test } from "vitest";
import { WaybillError } from "../../src/core/errors.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

const away = (): WaybillError => new WaybillError("STORE_UNAVAILABLE", "postgres://db cannot be reached: connect ECONNREFUSED");

/** A relay whose store answers its first looks with an error, at the check of its tables or at its leases. */
async function scene(where: "check" | "leases", fault: () => Error | null) {
  const clock = manualClock();
  const bench = await benches["memory"]!(clock);
  const heard: PathEvent[] = [];
  const fail = (at: typeof where): void => {
    const error = at === where ? fault() : null;
    if (error !== null) throw error;
  };
  const { schema, leases } = bench.store;
  const sink = scriptedSink();
  const relay = createRelay({
    store: {
      ...bench.store,
      schema: { ...schema, check: async () => (fail("check"), schema.check()) },
      leases: { ...leases, look: async () => (fail("leases"), leases.look()) },
    },
    ...{ sink, clock, housekeeping: false, observe: (event: PathEvent) => void heard.push(event) },
  });
  const troubles = (): readonly string[] => heard.flatMap((event) => (event.type === "relay.trouble" ? [event.error] : []));
  return { clock, bench, relay, sink, heard, troubles };
}

test.each(["check", "leases"] as const)(
  "a relay whose store is away at its first look (%s) waits for it, says why, and publishes",
  async (where) => {
    let down = true;
    const { clock, bench, relay, sink, heard, troubles } = await scene(where, () => (down ? away() : null));
    await bench.add(draft("a", 1));
    const started = relay.start();
    await clock.advance(20_000);
    await started;
    expect(relay.isRunning()).toBe(true);
    expect(troubles().length).toBeGreaterThan(3);
    expect(troubles()[0]).toContain("ECONNREFUSED");
    expect(sink.log).toEqual([]);
    down = false;
    await clock.advance(6_000);
    expect(sink.log).toHaveLength(1);
    expect(heard.filter(({ type }) => type === "relay.recovered")).toHaveLength(1);
    const stopped = relay.drain();
    await clock.advance(1_000);
    await stopped;
  },
);

test("a relay that is drained while its store is away ends in order", async () => {
  const { clock, relay } = await scene("check", away);
  const started = relay.start();
  await clock.advance(3_000);
  await started;
  const drained = relay.drain();
  await clock.advance(6_000);
  await drained;
  await relay.stopped;
});

test.each([
  ["a password that the server refuses", new WaybillError("STORE_UNAVAILABLE", "refused the connection", { retryable: false })],
  ["missing tables", new WaybillError("NOT_MIGRATED", "run waybill migrate")],
])("%s end the relay at once", async (_, error) => {
  const { relay } = await scene("check", () => error);
  await expect(relay.start()).rejects.toBe(error);
});

test("missing tables that a store shows when it comes back end the relay too", async () => {
  const errors: Error[] = [away(), new WaybillError("NOT_MIGRATED", "run waybill migrate")];
  const { clock, relay } = await scene("check", () => errors.shift()!);
  const started = relay.start();
  await clock.advance(1_000);
  await started;
  await expect(relay.stopped).rejects.toMatchObject({ code: "NOT_MIGRATED" });
});

test("runOnce does not wait: cron runs it again", async () => {
  const { relay } = await scene("check", away);
  await expect(relay.runOnce()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
});
