import { createBag } from "../core/bag.ts";
import type { Clock } from "../core/clock.ts";
import { createDeadlines } from "../core/deadlines.ts";
import { WaybillError } from "../core/errors.ts";
import { onAbort } from "../core/time.ts";

interface Limits {
  readonly ms: number;
  /** After this long, `onSlow` is called, once. */
  readonly slowMs: number;
  onSlow(): void;
}

/**
 * Runs a handler for at most `ms`, then rejects, so that its transaction is rolled back. A handler that ignores its signal
 * goes on, but nothing waits for it.
 */
export type InTime = (limits: Limits, work: (signal: AbortSignal) => Promise<void>) => Promise<void>;

/** All handlers of a subscriber share one timer and one listener on `stopping`. */
export function createInTime(clock: Clock, stopping: AbortSignal): InTime {
  const deadlines = createDeadlines(clock);
  const running = createBag<{ readonly giveUp: (why: WaybillError) => void; place: number }>();
  const stopped = (): WaybillError => new WaybillError("STOPPED", "the subscriber was stopped while the handler ran");
  onAbort(stopping, () => {
    for (const { giveUp } of running.things()) giveUp(stopped());
  });
  return ({ ms, slowMs, onSlow }, work) =>
    new Promise((resolve, reject) => {
      const handler = new AbortController();
      const giveUp = (why: WaybillError): void => {
        over();
        handler.abort(why);
        reject(why);
      };
      const late = (): void => giveUp(new WaybillError("HANDLER_TIMEOUT", `the handler did not finish within ${ms} ms`));
      let off = deadlines.set(Math.min(slowMs, ms), () => {
        if (slowMs >= ms) return late();
        onSlow();
        off = deadlines.set(ms - slowMs, late);
      });
      const over = (): void => {
        off();
        running.remove(run);
      };
      const run = { giveUp, place: 0 };
      running.put(run);
      work(handler.signal).then(
        () => {
          over();
          resolve();
        },
        (error: unknown) => {
          over();
          reject(error);
        },
      );
      if (stopping.aborted) giveUp(stopped());
    });
}
