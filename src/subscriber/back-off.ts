import type { Random } from "../core/random.ts";

const firstMs = 200;
const mostMs = 30_000;

/** For waits that end when something else is mended: doubling, bounded, spread so that many do not come back at once. */
export function backOff(tries: number, random: Random): number {
  const ms = Math.min(mostMs, firstMs * 2 ** Math.min(tries - 1, 16));
  return Math.round(ms * (0.75 + 0.5 * random.next()));
}
