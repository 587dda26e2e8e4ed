import { show, WaybillError } from "./errors.ts";
import { checkOptions } from "./options.ts";
import type { Random } from "./random.ts";

/** When a failed event gets its next attempt. `failures` counts the failed attempts so far, including the last. */
export interface RetrySchedule {
  readonly attempts: number;
  /** Milliseconds to wait, or null when the attempts are used up. */
  next(failures: number): number | null;
}

export interface RetryOptions {
  /** Waits between attempts. There is one attempt more than there are waits. @default [1000, 5000, 30000, 120000] */
  readonly delaysMs?: readonly number[];
  /** Each wait is varied by up to this share, up or down. @default 0.1 */
  readonly jitter?: number;
}

/** Five attempts. */
export const defaultDelaysMs: readonly number[] = [1_000, 5_000, 30_000, 120_000];

export function retrySchedule(options: RetryOptions, random: Random): RetrySchedule {
  checkOptions("retry", options, ["delaysMs", "jitter"]);
  const delays = options.delaysMs ?? defaultDelaysMs;
  const jitter = options.jitter ?? 0.1;
  if (!areDelays(delays)) {
    throw new WaybillError("INVALID_OPTION", `retry.delaysMs must hold milliseconds of 0 or more, not ${show(delays)}`);
  }
  if (typeof jitter !== "number" || !(jitter >= 0 && jitter < 1)) {
    throw new WaybillError("INVALID_OPTION", `retry.jitter must be at least 0 and less than 1, not ${show(jitter)}`);
  }
  return {
    attempts: delays.length + 1,
    next(failures) {
      const delay = delays[failures - 1];
      return delay === undefined ? null : Math.round(delay * (1 + jitter * (2 * random.next() - 1)));
    },
  };
}

function areDelays(value: unknown): boolean {
  return Array.isArray(value) && value.every((ms) => typeof ms === "number" && Number.isFinite(ms) && ms >= 0);
}

/** After this many relays in a row crashed with an event alone in their window, the event is parked, and is not even read again. */
export const deathsToPark = 3;
