/** One path that the package is imported from, and the source file behind it. */
export interface Door {
  readonly name: string;
  readonly source: string;
}

export function doors(): readonly Door[];
export function apiPage(entries: readonly Door[]): string;
