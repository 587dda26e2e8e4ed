import { getEventListeners } from "node:events";
import { afterEach, describe, expect, test, vi } from "vitest";
import { systemClock, turn } from "../../src/core/clock.ts";
import { withDeadline } from "../../src/core/time.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

const never = new AbortController().signal;
const aborted = (signal: AbortSignal): Promise<string> =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve("aborted")));

afterEach(() => void vi.useRealTimers());

describe("the system clock", () => {
  test("tells the wall's time, and one that never goes back", () => {
    const before = Date.now();
    expect(systemClock.now()).toBeGreaterThanOrEqual(before);
    const first = systemClock.monotonic();
    expect(systemClock.monotonic()).toBeGreaterThanOrEqual(first);
  });

  test.each([1, 500, 2 ** 31 - 1, 2 ** 31, 2 ** 31 + 5_000, 2 ** 33])("sleeps %i ms, not less and not more", async (ms) => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    let awake = false;
    void systemClock.sleep(ms).then(() => (awake = true));
    await vi.advanceTimersByTimeAsync(ms - 1);
    expect(awake).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(awake).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  test.each([-1, -5_000, -Infinity])("a sleep of %s ms is over already, and Node has nothing to warn of", async (ms) => {
    const warned: Error[] = [];
    const listen = (warning: Error): void => void warned.push(warning);
    process.on("warning", listen);
    await systemClock.sleep(ms);
    await turn();
    process.off("warning", listen);
    expect(warned).toEqual([]);
  });

  test("ends a sleep as soon as the signal aborts, and leaves neither timer nor listener", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const controller = new AbortController();
    const sleeps = [systemClock.sleep(1_000, controller.signal), systemClock.sleep(2 ** 40, controller.signal)];
    controller.abort();
    await Promise.all(sleeps);
    await systemClock.sleep(1_000, controller.signal);
    expect(vi.getTimerCount()).toBe(0);
    expect(getEventListeners(controller.signal, "abort")).toEqual([]);
  });

  test("leaves no listener when a sleep has its full time", async () => {
    const { signal } = new AbortController();
    await systemClock.sleep(1, signal);
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });
});

describe("withDeadline", () => {
  test("gives what the work gives, and leaves nothing asleep", async () => {
    const clock = manualClock();
    const { signal } = new AbortController();
    expect(await withDeadline(clock, 1_000, signal, () => Promise.resolve("done"))).toBe("done");
    await turn();
    expect(clock.sleeping).toBe(0);
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });

  test("fails as the work fails, be it at once", async () => {
    const clock = manualClock();
    const failing = withDeadline(clock, 1_000, never, () => {
      throw new Error("no");
    });
    await expect(failing).rejects.toThrow("no");
    await turn();
    expect(clock.sleeping).toBe(0);
  });

  test("aborts the work's signal at the deadline, not before", async () => {
    const clock = manualClock();
    let result: string | null = null;
    void withDeadline(clock, 1_000, never, aborted).then((value) => (result = value));
    await clock.advance(999);
    expect(result).toBeNull();
    await clock.advance(1);
    expect(result).toBe("aborted");
  });

  test("aborts the work's signal when the outer one does, with its reason", async () => {
    const clock = manualClock();
    const outer = new AbortController();
    let inner = never;
    const work = withDeadline(clock, 1_000, outer.signal, (signal) => {
      inner = signal;
      return aborted(signal);
    });
    outer.abort("stopping");
    expect(await work).toBe("aborted");
    expect(inner.reason).toBe("stopping");
    const late = await withDeadline(clock, 1_000, outer.signal, (signal) => Promise.resolve(signal.aborted));
    expect(late).toBe(true);
  });

  test("does not abort a signal whose work was over in time", async () => {
    const clock = manualClock();
    const outer = new AbortController();
    let inner = never;
    await withDeadline(clock, 1_000, outer.signal, (signal) => {
      inner = signal;
      return Promise.resolve();
    });
    await clock.advance(2_000);
    outer.abort();
    expect(inner.aborted).toBe(false);
  });
});
