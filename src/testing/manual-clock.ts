import { turn, type Clock } from "../core/clock.ts";
import { show, WaybillError } from "../core/errors.ts";
import { createMutex } from "../core/queue.ts";

/** Time that passes only when a test advances it. */
export interface ManualClock extends Clock {
  /**
   * Lets `ms` pass. Sleeps that come due end in the order of their moments, each at its own moment. Code that waited for a sleep runs
   * before the next sleep ends, and may sleep again within the same advance. Only work without real input or output is sure to be done
   * when this resolves.
   */
  advance(ms: number): Promise<void>;
  /** How many sleeps have not ended. */
  readonly sleeping: number;
  /** How long until the next of them ends; null when nothing sleeps. */
  readonly nextMs: number | null;
}

interface Sleeper {
  readonly due: number;
  readonly wake: () => void;
}

export function manualClock(startMs = 0): ManualClock {
  const mutex = createMutex();
  /** By due time; sleepers with the same due time in the order they came. */
  const sleepers: Sleeper[] = [];
  let passed = 0;

  const enter = (sleeper: Sleeper): void => {
    let low = 0;
    for (let high = sleepers.length; low < high;) {
      const middle = (low + high) >>> 1;
      if (sleepers[middle]!.due <= sleeper.due) low = middle + 1;
      else high = middle;
    }
    sleepers.splice(low, 0, sleeper);
  };

  return {
    now: () => startMs + passed,
    monotonic: () => passed,
    get sleeping() {
      return sleepers.length;
    },
    get nextMs() {
      return sleepers[0] === undefined ? null : sleepers[0].due - passed;
    },
    async sleep(ms, signal) {
      if (signal?.aborted) return;
      // As with the system's clock, a sleep of no time ends by itself.
      if (!(ms > 0)) return turn();
      await new Promise<void>((resolve) => {
        const sleeper: Sleeper = {
          due: passed + ms,
          wake: () => {
            const at = sleepers.indexOf(sleeper);
            if (at !== -1) sleepers.splice(at, 1);
            signal?.removeEventListener("abort", sleeper.wake);
            resolve();
          },
        };
        enter(sleeper);
        signal?.addEventListener("abort", sleeper.wake);
      });
    },
    async advance(ms) {
      if (!Number.isFinite(ms) || ms < 0) {
        throw new WaybillError("INVALID_OPTION", `advance takes milliseconds of 0 or more, not ${show(ms)}`);
      }
      await mutex.run(async () => {
        const until = passed + ms;
        await turn(); // code that is about to sleep does so before time passes
        for (let next = sleepers[0]; next !== undefined && next.due <= until; next = sleepers[0]) {
          passed = next.due;
          next.wake();
          await turn();
        }
        passed = until;
      });
    },
  };
}
