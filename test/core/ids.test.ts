import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Clock } from "../../src/core/clock.ts";
import { canonicalId, uuidv7 } from "../../src/core/ids.ts";
import { seededRandom, systemRandom } from "../../src/core/random.ts";

const clockOf = (now: () => number): Clock => ({ now, monotonic: () => 0, sleep: () => Promise.resolve() });
const layout = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

describe("uuidv7", () => {
  test("writes the moment into the first 48 bits", () => {
    const id = uuidv7(
      clockOf(() => 0x018f_2f65_1234),
      seededRandom(1),
    )();
    expect(id).toMatch(layout);
    expect(id.slice(0, 13)).toBe("018f2f65-1234");
  });

  test("ascends whatever the wall clock does: stand still, step back, jump, count fractions", () => {
    const step = fc.oneof(fc.constant(0), fc.integer({ min: -100_000, max: 100_000 }), fc.double({ min: 0, max: 2, noNaN: true }));
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), fc.integer(), (steps, seed) => {
        let now = 1_800_000_000_000;
        const newId = uuidv7(
          clockOf(() => now),
          seededRandom(seed),
        );
        let last = newId();
        for (const by of steps) {
          now += by;
          const id = newId();
          expect(id).toMatch(layout);
          expect(id > last).toBe(true);
          last = id;
        }
      }),
    );
  });

  test("ascends past the counter's end within one millisecond", () => {
    const newId = uuidv7(
      clockOf(() => 1_800_000_000_000),
      seededRandom(3),
    );
    const ids = Array.from({ length: 20_000 }, newId);
    expect(ids).toEqual([...ids].sort());
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("is unique over processes that share a millisecond", () => {
    const makers = Array.from({ length: 50 }, () =>
      uuidv7(
        clockOf(() => 1_800_000_000_000),
        systemRandom,
      ),
    );
    const ids = makers.flatMap((newId) => Array.from({ length: 200 }, newId));
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("is the same for the same seed and clock", () => {
    const some = () =>
      Array.from(
        { length: 5 },
        uuidv7(
          clockOf(() => 5),
          seededRandom(9),
        ),
      );
    expect(some()).toEqual(some());
  });
});

describe("canonicalId", () => {
  test("gives one spelling for each id", () => {
    fc.assert(
      fc.property(fc.uuid(), (id) => {
        expect(canonicalId(id)).toBe(id);
        expect(canonicalId(id.toUpperCase())).toBe(id);
      }),
    );
    fc.assert(
      fc.property(fc.ulid(), (id) => {
        expect(canonicalId(id)).toBe(id);
        expect(canonicalId(id.toLowerCase())).toBe(id);
      }),
    );
  });

  test.each([
    ["empty", ""],
    ["no id", "order-7"],
    ["a UUID without hyphens", "018f2f65000070008000000000000001"],
    ["a UUID and a line end", "018f2f65-0000-7000-8000-000000000001\n"],
    ["a ULID with a letter that ULIDs leave out", "01ARZ3NDEKTSV4RRFFQ69G5FAU"],
    ["a ULID beyond its range", "81ARZ3NDEKTSV4RRFFQ69G5FAV"],
    ["a ULID cut short", "01ARZ3NDEKTSV4RRFFQ69G5FA"],
  ])("takes nothing else: %s", (_, id) => {
    expect(canonicalId(id)).toBeNull();
  });
});
