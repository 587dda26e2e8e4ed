import { setMaxListeners } from "node:events";

/** A signal of one's own that also aborts when one that it follows does. `release` it when the work is over. */
export interface Follower {
  readonly signal: AbortSignal;
  abort(): void;
  release(): void;
}

/** For a signal that much work listens to at once: Node warns of a leak at the eleventh listener otherwise. */
export function shared(controller: AbortController): AbortController {
  setMaxListeners(0, controller.signal);
  return controller;
}

/** Instead of AbortSignal.any, which on Node 20 keeps every signal it ever made for as long as one of `outers` lives. */
export function follow(...outers: readonly AbortSignal[]): Follower {
  const own = shared(new AbortController());
  const followed = outers.map((outer) => {
    const abort = (): void => own.abort(outer.reason);
    if (outer.aborted) abort();
    else outer.addEventListener("abort", abort, { once: true });
    return () => outer.removeEventListener("abort", abort);
  });
  return {
    signal: own.signal,
    abort: () => own.abort(),
    release: () => followed.forEach((leave) => leave()),
  };
}

/** What `work` gives, or what `instead` gives as soon as the signal aborts; the work itself is not ended by it. */
export function orAborted<T>(work: Promise<T>, signal: AbortSignal, instead: () => T): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      try {
        resolve(instead());
      } catch (error) {
        reject(error);
      }
    };
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    void work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Whether the work was done before the signal aborted; a failure before that is the caller's. */
export function finished(work: () => Promise<unknown>, signal: AbortSignal | undefined): Promise<boolean> {
  if (signal?.aborted === true) return Promise.resolve(false);
  const done = (async () => work())().then(() => true);
  return signal === undefined ? done : orAborted(done, signal, () => false);
}
