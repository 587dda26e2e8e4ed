import type { Random } from "../core/random.ts";

const firstMs = 200;
const mostMs = 30_000;

/** For waits until something else recovers: doubled each time, bounded, and jittered so that many waiters do not retry at once. */
export function backOff(tries: number, random: Random): number {
  const ms = Math.min(mostMs, firstMs * 2 ** Math.min(tries - 1, 16));
  return Math.round(ms * (0.75 + 0.5 * random.next()));
}
