import { systemClock } from "../../core/clock.ts";

/** A subscriber gives a transaction 30 s to end after its handler. This time is waited twice. */
const rollbackMs = 5_000;

/** Runs the work of a transaction; when it fails, the transaction has to end soon. */
export type WatchRollback = (work: () => void | Promise<void>) => Promise<void>;

/**
 * A ROLLBACK waits behind a query that hangs on the same connection, and the caller would wait as long. So if a transaction has not ended
 * in time after its work failed, `cut` ends it from outside, and the caller stops waiting. The failure remains that of the work.
 */
export function rolledBackInTime<T>(transaction: (watch: WatchRollback) => Promise<T>, cut: () => Promise<unknown>): Promise<T> {
  let over = false;
  let stopWaiting = (): void => undefined;
  let cutFor: { readonly error: unknown } | null = null;
  return new Promise((resolve, reject) => {
    const bound = async (error: unknown): Promise<void> => {
      const ended = new AbortController();
      stopWaiting = () => ended.abort();
      await systemClock.sleep(rollbackMs, ended.signal);
      if (over) return;
      cutFor = { error };
      cut().catch(() => undefined); // the caller stops waiting in any case
      await systemClock.sleep(rollbackMs, ended.signal);
      reject(error);
    };
    const watch: WatchRollback = async (work) => {
      try {
        await work();
      } catch (error) {
        void bound(error);
        throw error;
      }
    };
    transaction(watch)
      .finally(() => {
        over = true;
        stopWaiting();
      })
      .then(resolve, (error: unknown) => reject(cutFor === null ? error : cutFor.error));
  });
}
