import { readFileSync, writeFileSync } from "node:fs";

/** A seed that failed once. It is played first, from then on. */
interface Kept {
  readonly target: string;
  readonly seed: number;
  /** The damages that it was shrunk to. */
  readonly only?: readonly string[];
  readonly why: string;
}

const file = new URL("./kept.json", import.meta.url);

export const readKept = (target: string): readonly Kept[] => all().filter((each) => each.target === target);

export function keep(kept: Kept): void {
  const known = all();
  if (known.some(({ target, seed }) => target === kept.target && seed === kept.seed)) return;
  writeFileSync(file, `${JSON.stringify([...known, kept], null, 2)}\n`);
}

const all = (): readonly Kept[] => JSON.parse(readFileSync(file, "utf8")) as readonly Kept[];

/** A store or a broker by its name, and what is done to its answers beside it. */
export const keptName = (kind: string, name: string): string => (kind === "line" || kind === "fake" ? `${kind} of ${name}` : name);
