/** Upper ends of the classes in which ages are counted, in milliseconds. There is one class more, for all that is older. */
export const ageBounds: readonly number[] = [
  ...[5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000],
  ...[60_000, 300_000, 1_800_000, 3_600_000, 21_600_000],
];

/** How old events were: one number for each class, and their sum. */
export interface Ages {
  readonly counts: readonly number[];
  readonly sumMs: number;
}

/** Costs no object per event. An event that seems to be younger than nothing, by a clock that is a little off, counts as new. */
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
