import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { LANES, laneOf } from "../../src/core/lane.ts";
import { seededRandom } from "../../src/core/random.ts";
import { uuidv7 } from "../../src/core/ids.ts";
import { systemClock } from "../../src/core/clock.ts";

describe("laneOf", () => {
  test("is always one of the lanes, and the same each time", () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (type, id) => {
        const lane = laneOf(type, id);
        expect(Number.isInteger(lane) && lane >= 0 && lane < LANES).toBe(true);
        expect(laneOf(type, id)).toBe(lane);
      }),
    );
  });

  test("never changes: rows that are stored already have these lanes", () => {
    const known = [laneOf("Order", "1"), laneOf("Order", "2"), laneOf("order", "1"), laneOf("Customer", "é"), laneOf("", "")];
    expect(known).toEqual([28, 21, 36, 51, 19]);
  });

  test("tells type and id apart", () => {
    const pairs = Array.from({ length: 200 }, (_, i) => [laneOf(`a${i}`, "b"), laneOf("a", `${i}b`)]);
    expect(pairs.some(([one, other]) => one !== other)).toBe(true);
  });

  const newId = uuidv7(systemClock, seededRandom(5));
  test.each<[string, (i: number) => string]>([
    ["numbers", (i) => String(i)],
    ["prefixed numbers", (i) => `order-${i}`],
    ["padded numbers", (i) => String(i).padStart(10, "0")],
    ["UUIDs of one moment", () => newId()],
    ["multiples of the number of lanes", (i) => String(i * LANES)],
  ])("spreads 10,000 %s evenly", (_, idOf) => {
    const counts = new Array<number>(LANES).fill(0);
    const ids = 10_000;
    for (let i = 0; i < ids; i++) counts[laneOf("Order", idOf(i))]! += 1;
    const expected = ids / LANES;
    const chiSquare = counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
    // 63 degrees of freedom: a fair spread exceeds 130 about once in a million.
    expect(chiSquare).toBeLessThan(130);
    expect(Math.max(...counts)).toBeLessThan(expected * 1.5);
    expect(Math.min(...counts)).toBeGreaterThan(expected * 0.5);
  });
});
