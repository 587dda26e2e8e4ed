import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { turn } from "../../src/core/clock.ts";
import { seededRandom } from "../../src/core/random.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

describe("a manual clock", () => {
  test("stands still until it is told to advance", async () => {
    const clock = manualClock(1_000);
    let awake = false;
    void clock.sleep(10).then(() => (awake = true));
    await turn();
    expect([clock.now(), clock.monotonic(), clock.sleeping, awake]).toEqual([1_000, 0, 1, false]);
    await clock.advance(9);
    expect(awake).toBe(false);
    await clock.advance(1);
    expect([clock.now(), clock.monotonic(), clock.sleeping, awake]).toEqual([1_010, 10, 0, true]);
  });

  test("says when the next sleep ends", async () => {
    const clock = manualClock(1_000);
    expect(clock.nextMs).toBe(null);
    void clock.sleep(30);
    const called = new AbortController();
    void clock.sleep(10, called.signal);
    expect(clock.nextMs).toBe(10);
    await clock.advance(4);
    expect(clock.nextMs).toBe(6);
    called.abort();
    expect(clock.nextMs).toBe(26);
  });

  test("ends sleeps by their moments, equal ones in the order they came, each at its own moment", async () => {
    const clock = manualClock();
    const random = seededRandom(1);
    const woken: { ms: number; order: number; at: number }[] = [];
    const sleeps = Array.from({ length: 2_000 }, (_, order) => ({ ms: 1 + Math.floor(random.next() * 100), order }));
    for (const { ms, order } of sleeps) void clock.sleep(ms).then(() => woken.push({ ms, order, at: clock.now() }));
    await clock.advance(100);
    const expected = sleeps.toSorted((a, b) => a.ms - b.ms || a.order - b.order).map((one) => ({ ...one, at: one.ms }));
    expect(woken).toEqual(expected);
  });

  test("lets what waited for one sleep run to its end before the next one ends", async () => {
    const clock = manualClock();
    const log: string[] = [];
    const worker = async (name: string): Promise<void> => {
      await clock.sleep(5);
      for (let step = 0; step < 50; step++) await Promise.resolve();
      log.push(name);
    };
    void worker("a");
    void worker("b");
    void clock.sleep(5).then(() => log.push("c"));
    await clock.advance(5);
    expect(log).toEqual(["a", "b", "c"]);
  });

  test("counts sleeps that begin while it advances", async () => {
    const clock = manualClock();
    const ticks: number[] = [];
    const loop = async (): Promise<void> => {
      while (ticks.length < 100) {
        await clock.sleep(10);
        ticks.push(clock.now());
      }
    };
    void loop();
    await clock.advance(95);
    expect(ticks).toEqual([10, 20, 30, 40, 50, 60, 70, 80, 90]);
    await clock.advance(5);
    expect(ticks.at(-1)).toBe(100);
  });

  test("counts a sleep that was only about to begin when it was told to advance", async () => {
    const clock = manualClock();
    let awake = false;
    const late = async (): Promise<void> => {
      await Promise.resolve();
      await Promise.resolve();
      await clock.sleep(10);
      awake = true;
    };
    void late();
    await clock.advance(10);
    expect(awake).toBe(true);
  });

  test("ends a sleep when its signal aborts, be it during an advance, and leaves nothing behind", async () => {
    const clock = manualClock();
    const controller = new AbortController();
    const ends: [string, number][] = [];
    void clock.sleep(50, controller.signal).then(() => ends.push(["aborted", clock.now()]));
    void clock.sleep(20).then(() => controller.abort());
    void clock.sleep(5, controller.signal).then(() => ends.push(["in time", clock.now()]));
    await clock.advance(100);
    expect(ends).toEqual([
      ["in time", 5],
      ["aborted", 20],
    ]);
    await clock.sleep(1_000, controller.signal);
    expect(clock.sleeping).toBe(0);
    expect(getEventListeners(controller.signal, "abort")).toEqual([]);
  });

  test("advances one piece after the other when it is told twice at once", async () => {
    const clock = manualClock();
    const at: number[] = [];
    for (const ms of [5, 15]) void clock.sleep(ms).then(() => at.push(clock.now()));
    await Promise.all([clock.advance(10), clock.advance(10)]);
    expect(at).toEqual([5, 15]);
    expect(clock.now()).toBe(20);
  });

  test("may be advanced by what it has woken", async () => {
    const clock = manualClock();
    let after = 0;
    void clock.sleep(5).then(async () => {
      await clock.advance(100);
      after = clock.now();
    });
    await clock.advance(10);
    while (after === 0) await turn();
    expect(after).toBe(110);
  });

  test.each([0, -5, NaN])("ends a sleep of %d by itself", async (ms) => {
    const clock = manualClock();
    await clock.sleep(ms);
    expect(clock.now()).toBe(0);
  });

  test("never ends an endless sleep but by its signal", async () => {
    const clock = manualClock();
    const controller = new AbortController();
    const sleep = clock.sleep(Infinity, controller.signal);
    await clock.advance(1e12);
    expect(clock.sleeping).toBe(1);
    controller.abort();
    await sleep;
  });

  test.each([-1, NaN, Infinity, "1"])("cannot advance by %s", async (ms) => {
    await expect(manualClock().advance(ms as number)).rejects.toThrow(expect.objectContaining({ code: "INVALID_OPTION" }) as Error);
  });
});
