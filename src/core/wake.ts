import type { Clock } from "./clock.ts";
import { follow } from "./time.ts";

/** A hint between an outbox and a relay of one process: there may be something to claim. Only polling finds every event. */
export interface Wake {
  notify(): void;
  /** Resolves on the next hint, after `ms`, or when the signal aborts. True when it was a hint. */
  wait(clock: Clock, ms: number, signal: AbortSignal): Promise<boolean>;
}

export function createWake(): Wake {
  let pending = false;
  const waiting = new Set<() => void>();
  return {
    notify() {
      // A hint given while nothing waits is kept, or a relay that is just finishing its poll would miss it.
      if (waiting.size === 0) pending = true;
      for (const wakeUp of waiting) wakeUp();
    },
    async wait(clock, ms, signal) {
      if (pending) {
        pending = false;
        return true;
      }
      const ended = follow(signal);
      let hinted = false;
      const hint = (): void => {
        hinted = true;
        ended.abort();
      };
      waiting.add(hint);
      try {
        await clock.sleep(ms, ended.signal);
      } finally {
        waiting.delete(hint);
        ended.release();
      }
      return hinted;
    },
  };
}
