import type { Legal } from "./legal.ts";

export const invariants = [
  "no loss",
  "no phantom",
  "order",
  "one effect",
  "few duplicates",
  "nothing stuck",
  "isolation",
  "fencing",
  "bytes",
  "conservation",
  "resources",
  "no secrets",
] as const;
export type Invariant = (typeof invariants)[number];

/** The smallest example that shows the broken promise. */
interface Example {
  readonly text: string;
  /** The events it is about. */
  readonly ids: readonly string[];
}

/** How often something that looks like a broken promise was legal. */
type Pardons = ReadonlyMap<Legal, number>;

export type Verdict =
  | { readonly invariant: Invariant; readonly verdict: "holds"; readonly pardons: Pardons }
  | { readonly invariant: Invariant; readonly verdict: "broken"; readonly example: Example; readonly times: number }
  /** As bad as broken: it is not known that the promise holds. */
  | { readonly invariant: Invariant; readonly verdict: "unknown"; readonly reason: string };

export const unknown = (invariant: Invariant, reason: string): Verdict => ({ invariant, verdict: "unknown", reason });

/** Collects the cases against an invariant, and keeps the smallest. */
export interface Trial {
  /** `size` orders examples; of equals, the first stays. */
  broken(size: number, text: string, ids: readonly string[]): void;
  pardon(why: Legal): void;
  /** A broken promise takes precedence over a doubt, which makes the verdict unknown. */
  verdict(doubt?: string | null): Verdict;
}

export function trial(invariant: Invariant): Trial {
  let smallest: (Example & { readonly size: number }) | null = null;
  let times = 0;
  const pardons = new Map<Legal, number>();
  return {
    broken(size, text, ids) {
      times++;
      if (smallest === null || size < smallest.size) smallest = { size, text, ids };
    },
    pardon: (why) => void pardons.set(why, (pardons.get(why) ?? 0) + 1),
    verdict(doubt = null) {
      if (smallest !== null) return { invariant, verdict: "broken", example: { text: smallest.text, ids: smallest.ids }, times };
      return doubt === null ? { invariant, verdict: "holds", pardons } : unknown(invariant, doubt);
    },
  };
}
