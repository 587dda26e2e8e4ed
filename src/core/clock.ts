/** Time is a port, so that the relay, leases and retries run under an injected clock. */
export interface Clock {
  /** Wall clock in milliseconds, for records. */
  now(): number;
  /** For deadlines and trust in one's own lease; never compared across processes. */
  monotonic(): number;
  /**
   * Resolves after `ms`, soon when that is over already, or as soon as the signal aborts; never rejects. An idle sleep does not keep the
   * process alive: it is for what a connection does while nobody waits for it.
   */
  sleep(ms: number, signal?: AbortSignal, idle?: "idle"): Promise<void>;
}

/** What setTimeout can wait for at once; it would fire at once if asked for more. */
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
      // Newer Nodes warn on the process's stderr of a time that is over.
      wait(Math.max(0, ms));
      signal?.addEventListener("abort", done);
    }),
};

/** Milliseconds since the machine began: all its processes share it, and nobody can set it. */
export const sharedNow = (): number => Math.round(Number(process.hrtime.bigint()) / 1_000) / 1_000;

/** Runs it then, unless the process has ended before: it keeps no process alive. */
export const later = (ms: number, run: () => void): void => void setTimeout(run, ms).unref();

/** Resolves once everything that could run without waiting has run. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
