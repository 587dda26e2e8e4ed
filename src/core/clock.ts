/** Time is a port, so that the relay, leases and retries run under an injected clock. */
export interface Clock {
  /** Wall clock in milliseconds, for records. */
  now(): number;
  /** For deadlines, and for how long a process trusts its own lease. Never compared across processes. */
  monotonic(): number;
  /**
   * Resolves after `ms` (soon if `ms` is 0 or less), or as soon as the signal aborts. Never rejects. An idle sleep does not keep the
   * process alive: it is for what a connection does while no caller waits for it.
   */
  sleep(ms: number, signal?: AbortSignal, idle?: "idle"): Promise<void>;
}

/** The longest time that setTimeout can wait. It would fire at once if asked for more. */
const longestMs = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (ms, signal, idle) =>
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
        if (idle === "idle") timer.unref();
      };
      // Newer versions of Node print a warning on stderr for a negative time.
      wait(Math.max(0, ms));
      signal?.addEventListener("abort", done);
    }),
};

/** Milliseconds since the machine started. All its processes share this clock, and it cannot be set. */
export const sharedNow = (): number => Math.round(Number(process.hrtime.bigint()) / 1_000) / 1_000;

/** Calls `run` after `ms`, unless the process has ended before: the timer does not keep it alive. */
export const later = (ms: number, run: () => void): void => void setTimeout(run, ms).unref();

/** Resolves once everything that could run without waiting has run. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
