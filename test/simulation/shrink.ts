import type { Verdict } from "../../src/proof/judge/verdict.ts";
import type { Plan } from "./plan.ts";
import { run } from "./run.ts";

/** Does this plan fail in the same way? One that has too little left to be judged by is no smaller form of one that breaks a promise. */
export const failsAs =
  ({ invariant, verdict }: Pick<Verdict, "invariant" | "verdict">) =>
  async (plan: Plan): Promise<boolean> =>
    (await run(plan)).verdicts.some((found) => found.invariant === invariant && found.verdict === verdict);

/** The smallest plan found within a minute that still fails: fewer faults first, then less work. */
export async function shrink(plan: Plan, fails: (plan: Plan) => Promise<boolean>): Promise<Plan> {
  const deadline = performance.now() + 60_000;
  const breaks = async (candidate: Plan): Promise<boolean> => performance.now() < deadline && (await fails(candidate));
  let smallest = plan;
  const lessOf = async <Key extends "faults" | "transactions">(key: Key): Promise<void> => {
    const less = (items: readonly unknown[]): Plan => ({ ...smallest, [key]: items });
    smallest = less(await fewer<unknown>(smallest[key], (items) => breaks(less(items))));
  };
  await lessOf("faults");
  await lessOf("transactions");
  for (const [index, transaction] of smallest.transactions.entries()) {
    const parts = await fewer(transaction.parts, (kept) => breaks(withPart(smallest, index, { ...transaction, parts: kept })));
    smallest = withPart(smallest, index, { ...transaction, parts });
  }
  await lessOf("faults");
  return smallest;
}

function withPart(plan: Plan, index: number, transaction: Plan["transactions"][number]): Plan {
  return { ...plan, transactions: plan.transactions.map((each, n) => (n === index ? transaction : each)) };
}

/** Delta debugging: leaves out halves, then quarters, and so on, for as long as it still fails without them. */
async function fewer<T>(items: readonly T[], fails: (items: readonly T[]) => Promise<boolean>): Promise<readonly T[]> {
  let kept = items;
  for (let size = Math.ceil(kept.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = 0; at < kept.length;) {
      const without = [...kept.slice(0, at), ...kept.slice(at + size)];
      if (without.length < kept.length && (await fails(without))) kept = without;
      else at += size;
    }
  }
  return kept;
}
