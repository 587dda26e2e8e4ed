/** Upper bounds of the histogram buckets for ages, in milliseconds. There is one more bucket, for everything older. */
export const ageBounds: readonly number[] = [
  ...[5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000],
  ...[60_000, 300_000, 1_800_000, 3_600_000, 21_600_000],
];

/** How old events were: a count for each bucket, and the sum of the ages. */
export interface Ages {
  readonly counts: readonly number[];
  readonly sumMs: number;
}

/** Allocates no object per event. A negative age, from a clock that is a little off, counts as 0. */
export function agesOf<T>(nowMs: number, events: readonly T[], createdAt: (event: T) => Date): Ages {
  const counts = new Array<number>(ageBounds.length + 1).fill(0);
  let sumMs = 0;
  for (const event of events) {
    const age = Math.max(0, nowMs - createdAt(event).getTime());
    let at = 0;
    while (at < ageBounds.length && age > ageBounds[at]!) at++;
    counts[at]! += 1;
    sumMs += age;
  }
  return { counts, sumMs };
}
