import { expect, test } from "vitest";
import { planOf } from "./plan.ts";
import { broken } from "./run.ts";

test("every promise holds under the faults of 40 seeds", async () => {
  for (let seed = 1; seed <= 40; seed++) expect(await broken(planOf(seed)), `seed ${seed}`).toEqual([]);
});
