/** How many of the hostile ones the server refused, and how many it took: a round whose input is all refused has shown little. */
export interface Report {
  readonly refused: number;
  readonly taken: number;
}

/** What one seed does to a store or a broker. Rejects when something broke that must hold. */
export interface Target extends AsyncDisposable {
  /** `only`: these of its damages. */
  round(seed: number, only?: readonly string[]): Promise<Report>;
  /** The input that fails, as small as it could be made; null when it only fails together with others. */
  shrink(seed: number): Promise<Shrunk | null>;
  /** The whole input of a seed. */
  tell(seed: number): string;
}

export interface Shrunk {
  readonly told: string;
  /** The fewest damages that still fail; none where the input is not made of damages. */
  readonly only?: readonly string[];
}
