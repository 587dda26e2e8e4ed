import { expect, test } from "vitest";
import { systemClock } from "../../src/core/clock.ts";
import { createDeadlines } from "../../src/core/deadlines.ts";

test("what is called off while others are late is not late", async () => {
  const deadlines = createDeadlines(systemClock);
  const late: string[] = [];
  const offs = ["a", "b"].map((name) =>
    deadlines.set(5, () => {
      late.push(name);
      for (const off of offs) off();
    }),
  );
  deadlines.set(20, () => late.push("later"));
  await systemClock.sleep(60);
  expect(late).toEqual(["a", "later"]);
});
