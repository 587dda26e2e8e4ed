import { expect, test } from "vitest";
import { createStoreClock } from "../../src/relay/lanes/store-clock.ts";

test("the store's clock is taken from the quickest answer of the last minute", () => {
  const clock = createStoreClock();
  expect(clock.at(5)).toBe(null);
  clock.told(10_000, 0, 100);
  expect(clock.at(50)).toBe(10_000);
  clock.told(20_000, 1_000, 1_010);
  expect(clock.at(1_005)).toBe(20_000);
  clock.told(99_000, 2_000, 2_900); // 900 ms of doubt
  expect(clock.at(1_105)).toBe(20_100);
  clock.told(99_000, 62_000, 62_900);
  expect(clock.at(62_450)).toBe(99_000);
});
