import type { Clock } from "../core/clock.ts";
import { asError, WaybillError } from "../core/errors.ts";
import type { ServiceRun } from "../core/service.ts";
import { alarm, follow, onAbort } from "../core/time.ts";

/**
 * How a relay ends. First it reads and sends nothing more, and settles or gives back what it holds (`draining`). Then it gives its lanes back
 * (`leaving`). A stop waits for neither (`stopping`).
 */
export interface Ending {
  readonly draining: AbortSignal;
  readonly leaving: AbortSignal;
  readonly stopping: AbortSignal;
  drain(): void;
  /** Drains, and ends the relay with this error. The first one counts. */
  fail(error: Error): void;
  leave(): void;
  /** Work that a drain waits for. By design it never fails. If it does, that is a bug in Waybill, and is not ignored. */
  track(work: Promise<unknown>): void;
  /** Resolves when nothing that is tracked is under way. */
  finished(): Promise<void>;
  /** Something was settled. */
  settled(): void;
  /** Resolves when the relay's work has ended, or soon after a stop: a step that hangs must not keep the process. */
  over(work: Promise<void>): Promise<void>;
}

const stopMs = 1_000;

/**
 * A relay that drains stops when it has settled nothing for `mostMs`. Otherwise a store that cannot be reached would keep the process for
 * ever. Other relays take over what is left then, as after a crash.
 */
export function createEnding(clock: Clock, mostMs: number, run: Pick<ServiceRun, "draining" | "stopping">): Ending {
  const drain = follow(run.draining);
  const stop = follow(run.stopping);
  const leaving = new AbortController();
  const underWay = new Set<Promise<unknown>>();
  let failure: Error | null = null;
  let cancel = (): void => undefined;

  const fail = (error: Error): void => {
    failure ??= error;
    drain.abort();
  };
  const putOff = (): void => {
    cancel();
    cancel = alarm(clock, mostMs, giveUp);
  };
  const giveUp = (): void => {
    const then = "another relay continues when this relay's lease has expired, and may send some events again";
    fail(new WaybillError("STOPPED", `nothing could be settled or given back for ${mostMs / 1_000} s: ${then}`));
    stop.abort();
  };
  onAbort(drain.signal, putOff);

  return {
    ...{ draining: drain.signal, leaving: leaving.signal, stopping: stop.signal },
    ...{ drain: drain.abort, fail, leave: () => leaving.abort() },
    track(work) {
      const tracked: Promise<unknown> = work.catch((error: unknown) => fail(asError(error))).finally(() => underWay.delete(tracked));
      underWay.add(tracked);
    },
    async finished() {
      while (underWay.size > 0) await Promise.all(underWay);
    },
    settled() {
      if (drain.signal.aborted) putOff();
    },
    async over(work) {
      const ended = new AbortController();
      const hung = new Promise<void>((resolve) => onAbort(stop.signal, resolve)).then(() => clock.sleep(stopMs, ended.signal));
      try {
        await Promise.race([work, hung]);
        if (failure !== null) throw failure;
      } finally {
        ended.abort();
        cancel();
        for (const { release } of [drain, stop]) release();
      }
    },
  };
}
