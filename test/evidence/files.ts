import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import type { Result } from "../faults/matrix/stage.ts";

const root = new URL("../../", import.meta.url);
const at = (name: string): URL => new URL(`docs/evidence/${name}.json`, root);

/** What a full run has shown of a mutant. */
export interface Tried {
  readonly name: string;
  readonly verdict: string;
  readonly how: string;
  readonly seconds: number;
}

interface Simulated {
  readonly seeds: number;
  readonly failed: number;
  readonly steps: number;
  readonly seconds: number;
}

/** What the tests have shown on one version of a server, of Node or of a client library. */
export interface VersionResult {
  readonly name: string;
  /** As the server tells it. */
  readonly version: string | null;
  readonly date: string;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  /** Why the version could not be had. */
  readonly why: string | null;
  readonly failures: readonly string[];
  readonly seconds: number;
}

/** What the last full runs have left in docs/evidence. */
export interface Evidence {
  readonly faults: readonly Result[];
  readonly mutants: readonly Tried[];
  readonly simulation: Simulated;
  readonly versions: readonly VersionResult[];
}

export function keep<K extends keyof Evidence>(name: K, evidence: Evidence[K]): void {
  mkdirSync(new URL("docs/evidence", root), { recursive: true });
  writeFileSync(at(name), `${JSON.stringify(evidence, null, 2)}\n`);
}

const recall = <K extends keyof Evidence>(name: K): Evidence[K] => JSON.parse(readFileSync(at(name), "utf8")) as Evidence[K];

export const recallAll = (): Evidence => ({
  faults: recall("faults"),
  mutants: recall("mutants"),
  simulation: recall("simulation"),
  versions: recall("versions"),
});
