import { asError } from "../core/errors.ts";
import type { Clock } from "../core/clock.ts";

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

/** Repeats with a growing wait until it succeeds or the signal aborts; undefined when it was aborted. */
export async function untilDone<T>(clock: Clock, signal: AbortSignal, work: () => Promise<T>, failed: (error: Error) => void): Promise<T | undefined> {
  for (let wait = 50; !signal.aborted; wait = Math.min(wait * 2, 2_000)) {
    try {
      return await work();
    } catch (error) {
      failed(asError(error));
      await clock.sleep(wait, signal);
    }
  }
  return undefined;
}
