import { setMaxListeners } from "node:events";
import type { Clock } from "./clock.ts";

/** For a signal with many listeners at once: otherwise Node warns of a leak at the eleventh listener. */
export function shared(controller: AbortController): AbortController {
  setMaxListeners(0, controller.signal);
  return controller;
}

/** A signal that never aborts. A socket never stops listening to its signal: give a socket one of its own. */
export const never: AbortSignal = shared(new AbortController()).signal;

/** The abort reason for each publish, delivery or wait. Without a reason, `abort` would make a DOMException with a stack each time. */
export const over = new DOMException("This operation was aborted", "AbortError");

/** Calls `act` when the signal aborts, or at once if it already has. The returned function stops listening. */
export function onAbort(signal: AbortSignal, act: () => void): () => void {
  if (signal.aborted) act();
  else signal.addEventListener("abort", act, { once: true });
  return () => signal.removeEventListener("abort", act);
}

/** A signal with its own `abort` that also aborts when a signal that it follows does. `release` it when the work is over. */
export interface Follower {
  readonly signal: AbortSignal;
  abort(): void;
  release(): void;
}

/** Instead of AbortSignal.any, which on Node 20 keeps every signal it ever made for as long as one of `outers` lives. */
export function follow(...outers: readonly AbortSignal[]): Follower {
  const own = shared(new AbortController());
  const followed = outers.map((outer) => onAbort(outer, () => own.abort(outer.reason)));
  return {
    signal: own.signal,
    abort: () => own.abort(over),
    release: () => followed.forEach((leave) => leave()),
  };
}

/** The result of `work`, or that of `instead` as soon as the signal aborts. The work itself then goes on, and its failure is ignored. */
export function orAborted<T>(work: Promise<T>, signal: AbortSignal, instead: () => T): Promise<T> {
  return new Promise((resolve, reject) => {
    const leave = onAbort(signal, () => {
      try {
        resolve(instead());
      } catch (error) {
        reject(error);
      }
    });
    void work.then(resolve, reject).finally(leave);
  });
}

/** The result of `work`, or null as soon as the signal aborts. */
export function until<T>(signal: AbortSignal, work: Promise<T>): Promise<T | null> {
  return orAborted<T | null>(work, signal, () => null);
}

/** The same for many pieces of work, with one listener on the signal: a new listener each time costs more than most work. */
export function untilAborted(signal: AbortSignal): <T>(work: Promise<T>) => Promise<T | null> {
  const waiting = new Set<() => void>();
  onAbort(signal, () => {
    for (const give of waiting) give();
  });
  return <T>(work: Promise<T>) =>
    new Promise<T | null>((resolve, reject) => {
      if (signal.aborted) resolve(null);
      const give = (): void => resolve(null);
      waiting.add(give);
      const over = (): void => void waiting.delete(give);
      work.then(
        (value) => {
          over();
          resolve(value);
        },
        (error: unknown) => {
          over();
          reject(error);
        },
      );
    });
}

/** Whether the work was done before the signal aborted. Rejects if the work failed before that. */
export function finished(work: () => Promise<unknown>, signal: AbortSignal = never): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false);
  const done = (async () => work())().then(() => true);
  return orAborted(done, signal, () => false);
}

/** Calls `act` after `ms`, unless the returned function is called before. */
export function alarm(clock: Clock, ms: number, act: () => void): () => void {
  const off = new AbortController();
  void clock.sleep(ms, off.signal).then(() => {
    if (!off.signal.aborted) act();
  });
  return () => off.abort(over);
}

/** The result of `work`, or null after `ms` or as soon as the signal aborts. The work itself then goes on, and its failure is ignored. */
export async function within<T>(clock: Clock, ms: number, work: Promise<T>, signal?: AbortSignal): Promise<T | null> {
  const ended = new AbortController();
  const first = Promise.race([work, clock.sleep(ms, ended.signal).then(() => null)]);
  try {
    return await (signal === undefined ? first : until(signal, first));
  } finally {
    ended.abort(over);
  }
}

/**
 * Runs `work` with a signal that aborts after `ms`, or when `outer` does. With `instead`, work that ignores the signal is left behind: at
 * once when `outer` aborts, and `graceMs` after the deadline.
 */
export async function withDeadline<T>(
  clock: Clock,
  ms: number,
  outer: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
  instead?: () => T,
  graceMs = 0,
): Promise<T> {
  const late = follow(outer);
  let giveUp = (): void => undefined;
  let leave = (): void => undefined;
  let off = alarm(clock, ms, () => {
    late.abort();
    if (graceMs > 0) off = alarm(clock, graceMs, () => giveUp());
    else giveUp();
  });
  try {
    const done = work(late.signal);
    if (instead === undefined) return await done;
    return await new Promise<T>((resolve, reject) => {
      giveUp = () => void (async () => instead())().then(resolve, reject);
      leave = onAbort(outer, giveUp);
      done.then(resolve, reject);
    });
  } finally {
    off();
    leave();
    late.release();
  }
}

/** Retries for as long as `again` returns a wait for the failure. If it returns null, the failure is thrown. */
export async function persist<T>(work: () => T | Promise<T>, again: (error: unknown, tried: number) => Promise<void> | null): Promise<T> {
  for (let tried = 1; ; tried++) {
    try {
      return await work();
    } catch (error) {
      const wait = again(error, tried);
      if (wait === null) throw error;
      await wait;
    }
  }
}
