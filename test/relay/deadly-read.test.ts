import { expect, test } from "vitest";
import type { OutboxStore } from "../../src/contracts/outbox-store.ts";
import { deathsToPark } from "../../src/core/retry.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

const windowBytes = 2_000;
const leaseMs = 10_000;

test("an event that ends every relay which reads it is parked unread after three deaths alone, and others flow", async () => {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  await using bench = await benches["memory"]!(clock);
  const sink = { ...scriptedSink(), can: { maxBytes: 1_000_000 } };
  const deadly = draft("deadly", 1, { payload: { n: 1, x: "x".repeat(5_000) } });
  const follower = draft("deadly", 2);
  const others = Array.from({ length: 30 }, (_, n) => draft(`order-${n}`, 1));
  await bench.add(...others.slice(0, 20), deadly, follower, ...others.slice(20));

  /** How many events the relay had in hand when it died, the deadly one among them. */
  const deaths: number[] = [];
  const events: PathEvent[] = [];
  const { outbox } = bench.store;
  /** Reading this one is the end. */
  const reading = (die: () => void): OutboxStore => {
    const open = new Map<string, number>();
    return {
      ...outbox,
      async claim(holding, request) {
        const window = await outbox.claim(holding, { ...request, limit: request.narrow ? request.limit : Math.min(request.limit, 5) });
        if (window.id !== null) open.set(window.id, window.claims.length);
        return window;
      },
      async settle(relay, window, outcomes) {
        open.set(window, open.get(window)! - outcomes.length);
        return outbox.settle(relay, window, outcomes);
      },
      payload(claim) {
        expect([claim.envelope.id, claim.deaths < deathsToPark]).toEqual([deadly.id, true]);
        deaths.push([...open.values()].reduce((sum, events) => sum + events));
        die();
        return new Promise(() => undefined);
      },
    };
  };
  const state = (): Promise<string> => bench.stateOf(deadly.id);
  for (let life = 0; life < 10 && (await state()) !== "DEAD"; life++) {
    let die = (): void => undefined;
    const dead = new Promise<void>((resolve) => (die = resolve));
    const relay = createRelay({
      store: { ...bench.store, outbox: reading(() => die()) },
      sink,
      clock,
      leaseMs,
      windowBytes,
      housekeeping: false,
      observe: (event) => void events.push(event),
    });
    await relay.start();
    let gone = false;
    void dead.then(() => (gone = true));
    for (let waited = 0; !gone && waited < 3 * leaseMs && (await state()) !== "DEAD"; waited += 500) await clock.advance(500);
    const stopped = relay.stop();
    await clock.advance(2 * leaseMs);
    await stopped;
  }
  expect(await state()).toBe("DEAD");
  expect(deaths.slice(-deathsToPark)).toEqual([1, 1, 1]);
  expect(events.filter(({ type }) => type === "relay.died")).toMatchObject([
    { id: deadly.id, error: expect.stringContaining("CRASHED_RELAY") as string, followers: "blocked" },
  ]);
  expect(sink.sent).not.toContain(deadly.id);
  expect(await bench.stateOf(follower.id)).toBe("BLOCKED");
  const last = createRelay({ store: bench.store, sink, clock, leaseMs, housekeeping: false });
  await last.start();
  await clock.advance(3_000);
  for (const { id } of others) expect(await bench.stateOf(id)).toBe("PUBLISHED");
  const stopped = last.stop();
  await clock.advance(3_000);
  await stopped;
});
