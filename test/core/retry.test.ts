import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { seededRandom, type Random } from "../../src/core/random.ts";
import { retrySchedule } from "../../src/core/retry.ts";

const fixed = (value: number): Random => ({ next: () => value, bytes: (length) => new Uint8Array(length) });

describe("the retry schedule", () => {
  test("is five attempts in all: at once, then after 1, 5, 30 and 120 seconds", () => {
    const schedule = retrySchedule({}, fixed(0.5));
    expect(schedule.attempts).toBe(5);
    expect([1, 2, 3, 4, 5, 6].map((failures) => schedule.next(failures))).toEqual([1_000, 5_000, 30_000, 120_000, null, null]);
  });

  test("varies each wait by up to a tenth, both ways", () => {
    expect(retrySchedule({}, fixed(0)).next(2)).toBe(4_500);
    expect(retrySchedule({}, fixed(1 - Number.EPSILON)).next(2)).toBe(5_500);
  });

  test("stays within its bounds and ends after its attempts, whatever the delays, jitter and chance", () => {
    const delays = fc.array(fc.integer({ min: 0, max: 1e9 }), { maxLength: 10 });
    const jitter = fc.double({ min: 0, max: 0.999, noNaN: true });
    fc.assert(
      fc.property(delays, jitter, fc.integer(), (delaysMs, share, seed) => {
        const schedule = retrySchedule({ delaysMs, jitter: share }, seededRandom(seed));
        expect(schedule.attempts).toBe(delaysMs.length + 1);
        delaysMs.forEach((delay, i) => {
          const wait = schedule.next(i + 1)!;
          expect(Number.isInteger(wait)).toBe(true);
          expect(wait).toBeGreaterThanOrEqual(Math.floor(delay * (1 - share)));
          expect(wait).toBeLessThanOrEqual(Math.ceil(delay * (1 + share)));
        });
        expect(schedule.next(delaysMs.length + 1)).toBeNull();
      }),
    );
  });

  test("of no delays is one attempt", () => {
    const schedule = retrySchedule({ delaysMs: [] }, fixed(0.5));
    expect(schedule.attempts).toBe(1);
    expect(schedule.next(1)).toBeNull();
  });

  test.each<[string, object, RegExp]>([
    ["a negative delay", { delaysMs: [-1] }, /retry.delaysMs must hold milliseconds of 0 or more, not \[-1\]/],
    ["NaN", { delaysMs: [NaN] }, /retry.delaysMs/],
    ["Infinity", { delaysMs: [Infinity] }, /retry.delaysMs/],
    ["a BigInt", { delaysMs: [1n] }, /retry.delaysMs .* not \[1n\]/],
    ["text", { delaysMs: ["1s"] }, /retry.delaysMs .* not \["1s"\]/],
    ["a number in place of a list", { delaysMs: 1_000 }, /retry.delaysMs .* not 1000/],
    ["a jitter of 1", { jitter: 1 }, /retry.jitter must be at least 0 and less than 1, not 1/],
    ["a negative jitter", { jitter: -0.1 }, /retry.jitter/],
    ["a jitter that is no number", { jitter: "0.1" }, /retry.jitter/],
    ["NaN as jitter", { jitter: NaN }, /retry.jitter/],
    ["a misspelt option", { delayMs: [1] }, /retry has no option "delayMs": did you mean delaysMs\?/],
  ])("refuses %s", (_, options, message) => {
    const make = () => retrySchedule(options, fixed(0.5));
    expect(make).toThrow(expect.objectContaining({ code: "INVALID_OPTION", message: expect.stringMatching(message) as string }) as Error);
  });
});
