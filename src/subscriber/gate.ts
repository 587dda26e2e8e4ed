import { Conflict } from "../core/blameless.ts";
import type { Clock } from "../core/clock.ts";

/** Lets batches through. */
export interface Gate {
  run<T>(batch: () => Promise<T>): Promise<T>;
}

const firstMs = 5_000;
const mostMs = 600_000;

/**
 * Batches lock the rows that their handlers update until all of their handlers have run. So batches that update the same rows in different
 * orders deadlock, and the database needs a second or more to find each deadlock. After a conflict, batches go one at a time. Then two at a
 * time, four, and so on; after another conflict one at a time again, for twice as long.
 */
export function createGate(clock: Clock, most: number): Gate {
  const waiting: (() => void)[] = [];
  let running = 0;
  let limit = most;
  /** How long a limit stays before it is doubled, and since when it has been as it is. */
  let holdMs = 0;
  let since = 0;

  const fill = (): void => {
    const now = clock.monotonic();
    if (limit < most && now - since >= holdMs) [limit, since] = [Math.min(most, limit * 2), now];
    while (running < limit && waiting.length > 0) {
      running += 1;
      waiting.shift()!();
    }
  };
  const narrow = (): void => {
    const now = clock.monotonic();
    // Batches that ran beside this one conflict with it once more each: that is one occasion.
    if (limit > 1) holdMs = limit === most && now - since > 2 * mostMs ? firstMs : Math.min(mostMs, Math.max(firstMs, holdMs * 2));
    [limit, since] = [1, now];
  };

  return {
    async run(batch) {
      await new Promise<void>((resolve) => {
        waiting.push(resolve);
        fill();
      });
      try {
        return await batch();
      } catch (error) {
        if (error instanceof Conflict) narrow();
        throw error;
      } finally {
        running -= 1;
        fill();
      }
    },
  };
}
