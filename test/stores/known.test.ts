import { expect, test } from "vitest";
import { createKnown } from "../../src/stores/kit/known.ts";

test("a window that ends while a claim is under way is not taken for a forgotten one, however often the claim is tried", () => {
  const known = createKnown();
  known.stale("r1", []);
  known.keep("r1", [], "w1");
  expect(known.stale("r1", ["w1"])).toEqual([]);
  known.doubt("r1");
  known.drop("r1", "w1");
  known.keep("r1", ["w1"], null);
  known.doubt("r1");
  known.keep("r1", ["w1"], "w2");
  expect(known.stale("r1", ["w2"])).toEqual([]);
});

test("a window that its relay does not name any more is a forgotten one", () => {
  const known = createKnown();
  known.keep("r1", ["w1"], "w2");
  expect(known.stale("r1", ["w2"])).toEqual(["w1"]);
});
