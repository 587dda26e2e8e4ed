import { follow } from "./signal.ts";

/** Time is a port, so that the relay, leases and retries run under an injected clock. */
export interface Clock {
  /** Wall clock in milliseconds, for records. */
  now(): number;
  /** For deadlines and trust in one's own lease; never compared across processes. */
  monotonic(): number;
  /** Resolves after `ms`, soon when that is over already, or as soon as the signal aborts; never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** What setTimeout can wait for at once; it would fire at once if asked for more. */
const longestMs = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      let timer: NodeJS.Timeout;
      const done = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const wait = (left: number): void => {
        timer = left > longestMs ? setTimeout(() => wait(left - longestMs), longestMs) : setTimeout(done, left);
      };
      // Newer Nodes warn on the process's stderr of a time that is over.
      wait(Math.max(0, ms));
      signal?.addEventListener("abort", done);
    }),
};

/** Resolves once everything that could run without waiting has run. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Runs `work` with a signal that aborts at the deadline, or when `outer` does. */
export async function withDeadline<T>(clock: Clock, ms: number, outer: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const ended = new AbortController();
  const late = follow(outer);
  void clock.sleep(ms, ended.signal).then(() => {
    if (!ended.signal.aborted) late.abort();
  });
  try {
    return await work(late.signal);
  } finally {
    ended.abort();
    late.release();
  }
}
