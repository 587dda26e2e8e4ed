import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { turn } from "../../src/core/clock.ts";
import { shared } from "../../src/core/time.ts";
import { createWake } from "../../src/core/wake.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

const never = shared(new AbortController()).signal;

describe("wake", () => {
  test("ends a wait at once, and says that it was a hint", async () => {
    const clock = manualClock();
    const wake = createWake();
    const waiting = wake.wait(clock, 1_000, never);
    wake.notify();
    expect(await waiting).toBe(true);
    expect(clock.now()).toBe(0);
    expect(clock.sleeping).toBe(0);
  });

  test("keeps one hint that comes while nobody waits", async () => {
    const clock = manualClock();
    const wake = createWake();
    wake.notify();
    wake.notify();
    expect(await wake.wait(clock, 1_000, never)).toBe(true);
    const second = wake.wait(clock, 1_000, never);
    await clock.advance(1_000);
    expect(await second).toBe(false);
  });

  test("keeps nothing that a waiter has had already", async () => {
    const clock = manualClock();
    const wake = createWake();
    const first = wake.wait(clock, 1_000, never);
    wake.notify();
    wake.notify();
    expect(await first).toBe(true);
    const second = wake.wait(clock, 1_000, never);
    await clock.advance(1_000);
    expect(await second).toBe(false);
  });

  test("wakes everybody who waits", async () => {
    const clock = manualClock();
    const wake = createWake();
    const waiting = Array.from({ length: 20 }, () => wake.wait(clock, 1_000, never));
    wake.notify();
    expect(await Promise.all(waiting)).toEqual(new Array(20).fill(true));
  });

  test("without a hint, ends after its time", async () => {
    const clock = manualClock();
    const wake = createWake();
    let ended: boolean | null = null;
    void wake.wait(clock, 1_000, never).then((hinted) => (ended = hinted));
    await clock.advance(999);
    expect(ended).toBeNull();
    await clock.advance(1);
    expect(ended).toBe(false);
  });

  test("ends when the signal aborts, before or during the wait", async () => {
    const clock = manualClock();
    const wake = createWake();
    const controller = new AbortController();
    const waiting = wake.wait(clock, 1_000, controller.signal);
    await turn();
    controller.abort();
    expect(await waiting).toBe(false);
    expect(await wake.wait(clock, 1_000, controller.signal)).toBe(false);
  });

  test("leaves nothing behind on a signal that outlives a thousand waits", async () => {
    const clock = manualClock();
    const wake = createWake();
    const { signal } = new AbortController();
    for (let i = 0; i < 1_000; i++) {
      const waiting = wake.wait(clock, 1_000, signal);
      wake.notify();
      await waiting;
    }
    expect(getEventListeners(signal, "abort")).toEqual([]);
    expect(clock.sleeping).toBe(0);
  });
});
