import { expect, test } from "vitest";
import { inTurn } from "../../src/brokers/kit/link.ts";
import { byAggregate, firsts } from "./kit/changes.ts";

test("a change counts where it came first, whatever copies come later", () => {
  const read = [1, 2, 3, 2, 4].map((n) => ({ aggregate: "a", n }));
  expect(byAggregate(firsts(read))).toEqual({ a: [1, 2, 3, 4] });
});

test("two that dial at once try every address each, and find the one that is up", async () => {
  const dial = inTurn(["down", "up"], async (address) => {
    await Promise.resolve();
    if (address === "down") throw new Error("refused");
    return address;
  });
  expect(await Promise.all([dial(), dial(), dial()])).toEqual(["up", "up", "up"]);
});
