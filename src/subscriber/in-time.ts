import type { Clock } from "../core/clock.ts";
import { WaybillError } from "../core/errors.ts";
import { within } from "../core/time.ts";

interface Limits {
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
  let done = await within(clock, Math.min(slowMs, ms), working, stopping);
  if (done === null && slowMs < ms && !stopping.aborted) {
    onSlow();
    done = await within(clock, ms - slowMs, working, stopping);
  }
  if (done === true) return;
  const error = stopping.aborted
    ? new WaybillError("STOPPED", "the subscriber was stopped while the handler ran")
    : new WaybillError("HANDLER_TIMEOUT", `the handler did not finish within ${ms} ms`);
  handler.abort(error);
  throw error;
}
