import type { Verdict } from "../../src/proof/judge/verdict.ts";
import { planOf } from "./plan.ts";
import { run } from "./run.ts";

/** What a worker tells of one seed. */
export interface Told {
  readonly seed: number;
  readonly hash: string;
  readonly steps: number;
  readonly verdicts: readonly Summary[];
}

interface Summary {
  readonly invariant: Verdict["invariant"];
  readonly verdict: Verdict["verdict"];
  readonly text: string;
  readonly pardons: readonly (readonly [string, number])[];
}

export const summaryOf = (verdict: Verdict): Summary => {
  const { invariant } = verdict;
  if (verdict.verdict === "holds") return { invariant, verdict: "holds", text: "", pardons: [...verdict.pardons] };
  if (verdict.verdict === "unknown") return { invariant, verdict: "unknown", text: verdict.reason, pardons: [] };
  return { invariant, verdict: "broken", text: verdict.example.text, pardons: [] };
};

// Errors are made by the thousand, and nobody reads where.
Error.stackTraceLimit = 0;

if (process.send !== undefined && process.argv.includes("--worker")) {
  // Whoever asked may be gone meanwhile.
  const tell = (message: Told | "more"): void => void process.send?.(message, undefined, undefined, () => undefined);
  process.on("disconnect", () => process.exit());
  process.on("message", (seeds: readonly number[]) => {
    void (async () => {
      for (const seed of seeds) {
        const { hash, steps, verdicts } = await run(planOf(seed));
        tell({ seed, hash, steps, verdicts: verdicts.map(summaryOf) });
      }
      tell("more");
    })();
  });
  tell("more");
}
