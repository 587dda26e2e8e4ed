import type { Clock } from "../core/clock.ts";
import { WaybillError } from "../core/errors.ts";
import { never, withDeadline } from "../core/time.ts";

interface Recency {
  /** `ask` is called again when the last answer, or the last failure, is this old. */
  readonly freshMs: number;
  /** How long a caller waits. It then gets the previous answer, unless the pending call began more than `staleMs` ago. */
  readonly patienceMs: number;
  readonly staleMs: number;
}

/** The latest answer. Concurrent callers share one call of `ask`. */
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
      asked = (async () => ask())(); // a synchronous throw is a failed answer too, and `ask` is called again later
      asked.then(
        (answer) => answered({ answer }),
        () => answered(null),
      );
    }
    const coming = asked;
    return withDeadline(clock, patienceMs, never, () => coming, ifLate);
  };
}
