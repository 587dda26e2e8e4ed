import { seededRandom } from "../../src/core/random.ts";

/** Everything that is made up of one seed: the same for the same seed and name. */
export interface Chance {
  /** Below `n`. */
  below(n: number): number;
  is(odds: number): boolean;
  pick<T>(values: readonly T[]): T;
  /** So many characters that nothing compresses. */
  noise(length: number): string;
}

export function chanceOf(seed: number, name: string): Chance {
  let hash = 0x811c9dc5 ^ seed;
  for (const char of name) hash = Math.imul(hash ^ char.charCodeAt(0), 0x01000193);
  const random = seededRandom(hash ^ (hash >>> 15));
  const below = (n: number): number => Math.floor(random.next() * n);
  return {
    below,
    is: (odds) => random.next() < odds,
    pick: (values) => values[below(values.length)]!,
    noise: (length) => {
      let text = "";
      while (text.length < length) text += Math.floor(random.next() * 36 ** 8).toString(36);
      return text.slice(0, length);
    },
  };
}
