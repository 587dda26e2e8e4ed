/** What one seed does to a store or a broker. Rejects when something broke that must hold; says in few words how it went. */
export interface Target extends AsyncDisposable {
  round(seed: number): Promise<string>;
  /** The input that fails, as small as it could be made; null when it only fails together with others. */
  shrink(seed: number): Promise<string | null>;
  /** The whole input of a seed. */
  tell(seed: number): string;
}
