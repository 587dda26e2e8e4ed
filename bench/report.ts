export interface Figure {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
}

/** One question, its answer as a ratio to a baseline of the same run, and the bound that must hold; null where it is only shown. */
export interface Finding {
  readonly question: string;
  readonly figures: readonly Figure[];
  readonly ratio: number;
  readonly bound: { readonly at: "least" | "most"; readonly ratio: number } | null;
  readonly notes?: readonly string[];
}

export function holds({ ratio, bound }: Finding): boolean {
  if (bound === null) return true;
  return bound.at === "least" ? ratio >= bound.ratio : ratio <= bound.ratio;
}

export function text(finding: Finding): string {
  const { question, figures, ratio, bound, notes = [] } = finding;
  const verdict = bound === null ? "shown" : `${holds(finding) ? "holds" : "BROKEN"}: at ${bound.at} ${bound.ratio}`;
  return [
    question,
    ...figures.map(({ what, value, unit }) => `  ${what.padEnd(48)} ${round(value).toLocaleString("en").padStart(12)} ${unit}`),
    `  ${"ratio".padEnd(48)} ${ratio.toFixed(2).padStart(12)} (${verdict})`,
    ...notes.map((note) => `  ${note}`),
  ].join("\n");
}

const round = (value: number): number => (value >= 100 ? Math.round(value) : Math.round(value * 100) / 100);
