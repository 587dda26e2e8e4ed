import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { seededRandom, systemRandom } from "../../src/core/random.ts";

describe.each([
  ["systemRandom", () => systemRandom],
  ["seededRandom", () => seededRandom(7)],
])("%s", (_, make) => {
  test("is uniform in [0, 1)", () => {
    const random = make();
    const tenths = new Array<number>(10).fill(0);
    for (let i = 0; i < 10_000; i++) {
      const value = random.next();
      expect(value >= 0 && value < 1).toBe(true);
      tenths[Math.floor(value * 10)]! += 1;
    }
    for (const count of tenths) expect(Math.abs(count - 1_000)).toBeLessThan(200);
  });

  test("gives as many bytes as asked for, of all values", () => {
    const random = make();
    expect(random.bytes(0)).toHaveLength(0);
    const bytes = random.bytes(10_000);
    expect(bytes).toHaveLength(10_000);
    expect(new Set(bytes).size).toBe(256);
  });
});

describe("a seed", () => {
  test("decides everything that follows", () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const draw = () => {
          const random = seededRandom(seed);
          return [random.next(), ...random.bytes(8), random.next()];
        };
        expect(draw()).toEqual(draw());
      }),
    );
  });

  test("differs from its neighbours", () => {
    const firsts = Array.from({ length: 1_000 }, (_, seed) => seededRandom(seed).next());
    expect(new Set(firsts).size).toBe(1_000);
  });
});
