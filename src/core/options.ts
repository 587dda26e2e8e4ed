import { show, WaybillError } from "./errors.ts";

/** A misspelt option would silently do nothing, so every factory checks its own options. */
export function checkOptions(where: string, options: object, known: readonly string[]): void {
  if (typeof options !== "object" || options === null) {
    throw new WaybillError("INVALID_OPTION", `${where} takes an object of options, not ${show(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) {
      throw new WaybillError("INVALID_OPTION", `${where} has no option ${show(name)}${suggestion(name, known)}`);
    }
  }
}

export function positive(where: string, value: number): number {
  if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) {
    throw new WaybillError("INVALID_OPTION", `${where} must be a number above 0, not ${show(value)}`);
  }
  return value;
}

export function whole(where: string, value: number, least = 1): number {
  if (!Number.isSafeInteger(value) || value < least) {
    throw new WaybillError("INVALID_OPTION", `${where} must be a whole number of ${least} or more, not ${show(value)}`);
  }
  return value;
}

/** ": did you mean x?" for the nearest known word, or the list of what there is. */
export function suggestion(word: string, known: readonly string[]): string {
  const asked = word.slice(0, 64).toLowerCase();
  const [nearest] = known.map((candidate) => ({ candidate, far: distance(asked, candidate.toLowerCase()) })).sort((a, b) => a.far - b.far);
  if (nearest !== undefined && nearest.far <= Math.max(2, Math.floor(asked.length / 3))) return `: did you mean ${nearest.candidate}?`;
  return known.length === 0 ? "" : `: there are ${known.join(", ")}`;
}

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(next[j - 1]! + 1, row[j]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length]!;
}
