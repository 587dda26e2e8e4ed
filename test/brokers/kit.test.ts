import { expect, test } from "vitest";
import { byAggregate, firsts } from "./kit/changes.ts";

test("a change counts where it came first, whatever copies come later", () => {
  const read = [1, 2, 3, 2, 4].map((n) => ({ aggregate: "a", n }));
  expect(byAggregate(firsts(read))).toEqual({ a: [1, 2, 3, 4] });
});
