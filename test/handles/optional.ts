import { describe, test } from "vitest";
import type { Adapter, Database } from "./adapter.ts";

/** A library that this checkout does not have, and why. */
export interface Missing {
  readonly library: string;
  readonly database: Database;
  readonly why: string;
}

/** Those that are there; the tests of the others are skipped aloud. In a run that is about a library, its absence is a failure. */
export function present(found: readonly (Adapter | Missing)[]): readonly Adapter[] {
  return found.filter((one): one is Adapter => {
    if ("open" in one) return true;
    const told = `${one.library} on ${one.database} (not tested here: ${one.why})`;
    if (process.env["WAYBILL_NONE_MISSING"]) throw new Error(told);
    console.warn(`skipped: ${told}`);
    describe.skip(told, () => test("works with the library itself", () => undefined));
    return false;
  });
}
