import { readFileSync } from "node:fs";
import type { Plan } from "./plan.ts";

/** A plan that failed once, as small as it could be made. */
interface Regression {
  readonly why: string;
  readonly plan: Plan;
}

export function readRegressions(): readonly Regression[] {
  return JSON.parse(readFileSync(new URL("./regressions.json", import.meta.url), "utf8")) as Regression[];
}
