import { describe, test } from "vitest";
import type { Adapter, Database } from "./adapter.ts";

/** A library that this checkout does not have, and why. */
export interface Missing {
  readonly library: string;
  readonly database: Database;
  readonly why: string;
}

/** Those that are there; the tests of the others are skipped aloud. */
export function present(found: readonly (Adapter | Missing)[]): readonly Adapter[] {
  return found.filter((one): one is Adapter => {
    if ("open" in one) return true;
    const told = `${one.library} on ${one.database} (not tested here: ${one.why})`;
    console.warn(`skipped: ${told}`);
    describe.skip(told, () => test("works with the library itself", () => undefined));
    return false;
  });
}
