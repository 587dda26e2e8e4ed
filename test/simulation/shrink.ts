import type { Verdict } from "../../src/proof/judge/verdict.ts";
import { fewer } from "../support/fewer.ts";
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
