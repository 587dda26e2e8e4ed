import type { Clock } from "../core/clock.ts";
import { asError } from "../core/errors.ts";
import { orAborted } from "../core/signal.ts";

/** The steps under way, each with a deadline: a relay that hangs in one of them makes no progress. */
export interface Steps {
  run<T>(ms: number, work: () => Promise<T>): Promise<T>;
  progress(): boolean;
}

export function createSteps(clock: Clock): Steps {
  const deadlines = new Set<{ readonly at: number }>();
  return {
    async run(ms, work) {
      const deadline = { at: clock.monotonic() + ms };
      deadlines.add(deadline);
      try {
        return await work();
      } finally {
        deadlines.delete(deadline);
      }
    },
    progress() {
      const now = clock.monotonic();
      return [...deadlines].every(({ at }) => at > now);
    },
  };
}

/** Repeats with a growing wait until it succeeds, or `end` aborts; undefined then, or at once when `now` aborts. */
export async function untilDone<T>(
  clock: Clock,
  { end, now }: { readonly end: AbortSignal; readonly now: AbortSignal },
  work: () => Promise<T>,
  failed: (error: Error) => void,
): Promise<T | undefined> {
  for (let wait = 50; !end.aborted && !now.aborted; wait = Math.min(wait * 2, 2_000)) {
    try {
      return await orAborted<T | undefined>(work(), now, () => undefined);
    } catch (error) {
      failed(asError(error));
      await clock.sleep(wait, end);
    }
  }
  return undefined;
}
