import { AssertionError } from "node:assert";
import { systemClock, turn } from "../core/clock.ts";
import type { ManualClock } from "./manual-clock.ts";

/** Lets time pass for work that waits for it, without real waiting. */
export interface Passing {
  /** Until `work` has ended. Settles as `work` did. */
  through<T>(work: Promise<T>, what: string): Promise<T>;
  /** Until the condition holds. */
  until(condition: () => boolean, what: string): Promise<void>;
  /** The same object; time passes no faster than real time while one of its calls is under way. */
  paced<T extends object>(target: T): T;
}

/** Longer than any retry schedule that ends. */
const longestMs = 7 * 24 * 60 * 60 * 1_000;

export function createPassing(clock: ManualClock): Passing {
  let underWay = 0;

  const step = async (): Promise<void> => {
    // A store with real input and output, or a handler that waits for something real, must not time out only because time is cheap here.
    if (underWay > 0 || clock.nextMs === null) {
      await systemClock.sleep(1);
      await clock.advance(1);
    } else {
      await clock.advance(clock.nextMs);
    }
  };

  const until = async (condition: () => boolean, what: string): Promise<void> => {
    const from = clock.monotonic();
    for (;;) {
      await turn();
      if (condition()) return;
      if (clock.monotonic() - from > longestMs) throw new AssertionError({ message: `${what} does not end: a week has passed` });
      await step();
    }
  };

  return {
    until,
    async through(work, what) {
      let ended = false;
      const end = (): void => void (ended = true);
      work.then(end, end);
      await until(() => ended, what);
      return work;
    },
    paced: <T extends object>(target: T) =>
      new Proxy({} as T, {
        get(_, name) {
          const value: unknown = Reflect.get(target, name);
          if (typeof value !== "function") return value;
          return (...args: unknown[]): unknown => {
            const result: unknown = Reflect.apply(value, target, args);
            if (result instanceof Promise) {
              underWay++;
              const end = (): void => void underWay--;
              result.then(end, end);
            }
            return result;
          };
        },
      }),
  };
}
