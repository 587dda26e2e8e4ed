import type { Clock } from "../core/clock.ts";
import { WaybillError } from "../core/errors.ts";
import { never, withDeadline } from "../core/time.ts";

interface Recency {
  /** It is asked for again when the last answer, a failure included, is as old. */
  readonly freshMs: number;
  /** Nobody waits longer: then the answer before is given, unless the next one has been asked for since `staleMs`. */
  readonly patienceMs: number;
  readonly staleMs: number;
}

/** The latest answer. However many want it meanwhile, it is asked for once. */
export function recent<T>(ask: () => Promise<T>, { freshMs, patienceMs, staleMs }: Recency, clock: Clock): () => Promise<T> {
  let asked: Promise<T> | null = null;
  let askAgainAt = Infinity;
  let askedAt = 0;
  let earlier: { readonly answer: T } | null = null;
  const answered = (given: typeof earlier): void => {
    askAgainAt = clock.monotonic() + freshMs;
    earlier = given;
  };
  const ifLate = (): T => {
    if (earlier !== null && clock.monotonic() - askedAt <= staleMs) return earlier.answer;
    throw new WaybillError("STORE_UNAVAILABLE", `the store has not answered for ${patienceMs} ms`);
  };
  return () => {
    if (asked === null || clock.monotonic() >= askAgainAt) {
      askAgainAt = Infinity;
      askedAt = clock.monotonic();
      asked = (async () => ask())(); // one that throws at once is a failed answer too, and is followed by another
      asked.then(
        (answer) => answered({ answer }),
        () => answered(null),
      );
    }
    const coming = asked;
    return withDeadline(clock, patienceMs, never, () => coming, ifLate);
  };
}
