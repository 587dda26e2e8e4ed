import type { Facts } from "./facts.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/** R: whatever could grow stays within its bound. */
export function resources({ reads }: Facts): Verdict {
  if (reads.samples === null || reads.samples.length === 0) return unknown("resources", "nothing was measured");
  const { broken, verdict } = trial("resources");
  for (const { what, value, bound } of reads.samples) {
    if (!(value <= bound)) broken(value / bound, `${what} came to ${value}, and its bound is ${bound}`, []);
  }
  return verdict();
}
