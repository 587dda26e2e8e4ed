import type { Clock } from "../core/clock.ts";
import { WaybillError } from "../core/errors.ts";

/** What the promise gives, or null as soon as the signal aborts; a failure after that is nobody's. */
export function until<T>(signal: AbortSignal, promise: Promise<T>): Promise<T | null> {
  return new Promise((resolve, reject) => {
    const aborted = (): void => resolve(null);
    if (signal.aborted) aborted();
    else signal.addEventListener("abort", aborted);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", aborted));
  });
}

/** What the promise gives, or null after `ms`, or as soon as the signal aborts. */
export async function within<T>(clock: Clock, ms: number, signal: AbortSignal, promise: Promise<T>): Promise<T | null> {
  const ended = new AbortController();
  const late = clock.sleep(ms, ended.signal).then(() => null);
  try {
    return await until(signal, Promise.race([promise, late]));
  } finally {
    ended.abort();
  }
}

export interface Limits {
  readonly ms: number;
  /** After this long, `onSlow` is told, once. */
  readonly slowMs: number;
  onSlow(): void;
}

/**
 * Runs a handler for at most `ms`. A handler that does not heed its signal goes on, but nobody waits for it:
 * this rejects, so that its transaction is rolled back.
 */
export async function inTime(
  clock: Clock,
  { ms, slowMs, onSlow }: Limits,
  stopping: AbortSignal,
  work: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const handler = new AbortController();
  const working = work(handler.signal).then(() => true);
  let done = await within(clock, Math.min(slowMs, ms), stopping, working);
  if (done === null && slowMs < ms && !stopping.aborted) {
    onSlow();
    done = await within(clock, ms - slowMs, stopping, working);
  }
  if (done === true) return;
  const error = stopping.aborted
    ? new WaybillError("STOPPED", "the subscriber was stopped while the handler ran")
    : new WaybillError("HANDLER_TIMEOUT", `the handler did not finish within ${ms} ms`);
  handler.abort(error);
  throw error;
}
