import { turn, type Clock } from "../core/clock.ts";
import { show, WaybillError } from "../core/errors.ts";
import { createMutex } from "../core/queue.ts";

/** Time that passes only when it is told to. */
export interface ManualClock extends Clock {
  /**
   * Lets `ms` pass. Sleeps that come due end in the order of their moments, each at its own moment, and what waited
   * for one runs before the next ends; it may sleep again within the same advance. Only work that needs no real
   * input or output is surely done when this resolves.
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
  /** By moment; those of one moment in the order they came. */
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
        await turn(); // what is about to sleep does so before time passes
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
