import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { planOf, type Plan } from "./plan.ts";
import { readRegressions } from "./regressions.ts";
import { broken, run } from "./run.ts";
import { shrink } from "./shrink.ts";

describe("the simulation", () => {
  const regressions = readRegressions();
  test.each(regressions.map(({ why, plan }) => [why, plan] as const))("what failed once holds: %s", async (_, plan) => {
    expect(await broken(plan)).toEqual([]);
  });

  test("every promise holds under the faults of 8 seeds", { timeout: 60_000 }, async () => {
    for (let seed = 1; seed <= 8; seed++) expect(await broken(planOf(seed)), `seed ${seed}`).toEqual([]);
  });

  test("one seed is one run, here and in another process", { timeout: 60_000 }, async () => {
    const seed = 4711;
    const { hash } = await run(planOf(seed));
    expect((await run(planOf(seed))).hash).toBe(hash);
    expect((await run(planOf(seed + 1))).hash).not.toBe(hash);
    const root = fileURLToPath(new URL("../..", import.meta.url));
    const other = spawnSync(process.execPath, ["scripts/run-ts.mjs", "test/simulation/index.ts", "--seed", String(seed), "--hash"], {
      cwd: root,
      encoding: "utf8",
    });
    expect(other.stderr).toBe("");
    expect(other.stdout.trim()).toBe(hash);
  });

  test("a plan is data, and runs the same after a trip through a file", async () => {
    const plan = planOf(9);
    expect((await run(JSON.parse(JSON.stringify(plan)) as Plan)).hash).toBe((await run(plan)).hash);
  });

  test("a plan that fails is shrunk to the faults, transactions and aggregates that it takes", async () => {
    const plan = planOf(12);
    const wanted = plan.faults.filter((_, index) => index === 1 || index === 3);
    const aggregate = plan.transactions.find(({ parts }) => parts.length > 1)!.parts[1]!.aggregate;
    const { faults, transactions } = await shrink(plan, async (less) => {
      const touched = less.transactions.flatMap(({ parts }) => parts.map((part) => part.aggregate));
      return wanted.every((fault) => less.faults.includes(fault)) && touched.filter((each) => each === aggregate).length >= 2;
    });
    expect(faults).toEqual(wanted);
    expect(transactions.flatMap(({ parts }) => parts.map((part) => part.aggregate))).toEqual([aggregate, aggregate]);
  });
});
