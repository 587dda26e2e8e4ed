import type { Clock } from "../../core/clock.ts";

const longestMs = 10;

/**
 * For loops over a synchronous client, whose awaits never leave the microtask queue: the timers, signals and sockets of the process would
 * wait until the loop has nothing left to do. Awaiting the returned promise gives them a turn when they have had none for 10 ms, and costs
 * nothing otherwise.
 */
export function createTurns(clock: Clock): () => Promise<void> {
  let waiting: { readonly since: number; readonly over: Promise<void> } | null = null;
  const nothing = Promise.resolve();
  return () => {
    const now = clock.monotonic();
    if (waiting !== null) return now - waiting.since > longestMs ? waiting.over : nothing;
    const over = clock.sleep(0).then(() => {
      waiting = null;
    });
    waiting = { since: now, over };
    return nothing;
  };
}
