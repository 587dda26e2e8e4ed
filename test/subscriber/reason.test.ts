import { expect, test } from "vitest";
import { oneLine } from "../../src/subscriber/reason.ts";

test("a reason of 500 characters is kept whole, and a longer one is cut to 500, the mark of the cut included", () => {
  expect(oneLine("x".repeat(500))).toBe("x".repeat(500));
  expect(oneLine("x".repeat(501))).toBe(`${"x".repeat(499)}…`);
});

test("a reason that is cut inside a character loses that character, not half of it", () => {
  expect(oneLine(`${"x".repeat(498)}😀😀`)).toBe(`${"x".repeat(498)}…`);
});
