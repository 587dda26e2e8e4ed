import { WaybillError } from "./errors.ts";
import { shared } from "./time.ts";

/** A relay or a subscriber. Starting it twice, stopping it twice, or stopping it before it started is harmless. */
export interface Service extends AsyncDisposable {
  /** Resolves when it is ready, rejects when it cannot become so. */
  start(): Promise<void>;
  /** Takes no more, finishes what it holds, gives the rest back. */
  drain(): Promise<void>;
  /** Ends now: work under way is aborted, and leases expire or are taken over by other processes. */
  stop(): Promise<void>;
  /** True from when it is ready until it is drained or stopped, or ends by itself. For readiness probes. */
  isRunning(): boolean;
  /** Resolves when it has ended; rejects with the error that ended it. */
  readonly stopped: Promise<void>;
}

/** What a service's body is given. Draining aborts `draining` only; stopping aborts both. */
export interface ServiceRun {
  readonly draining: AbortSignal;
  readonly stopping: AbortSignal;
  ready(): void;
}

/** The body runs until `draining` aborts, and then finishes what it holds unless `stopping` aborts too. */
export function createService(body: (run: ServiceRun) => Promise<void>): Service {
  const draining = shared(new AbortController());
  const stopping = shared(new AbortController());
  const ready = deferred();
  const ended = deferred();
  let started = false;
  let running = false;
  const isReady = (): void => {
    running = true;
    ready.resolve();
  };

  const service: Service = {
    stopped: ended.promise,
    isRunning: () => running && !draining.signal.aborted,
    start() {
      if (started) return ready.promise;
      if (draining.signal.aborted) {
        return Promise.reject(new WaybillError("STOPPED", "this service has been stopped; create a new one"));
      }
      started = true;
      // Async, so that a body that throws before it returns a promise ends the service too.
      const work = (async () => body({ draining: draining.signal, stopping: stopping.signal, ready: isReady }))();
      work.then(
        () => {
          running = false;
          ready.resolve();
          ended.resolve();
        },
        (error: unknown) => {
          running = false;
          ready.reject(error);
          ended.reject(error);
        },
      );
      return ready.promise;
    },
    async drain() {
      draining.abort();
      if (!started) ended.resolve();
      await ended.promise.catch(() => undefined);
    },
    async stop() {
      draining.abort();
      stopping.abort();
      if (!started) ended.resolve();
      await ended.promise.catch(() => undefined);
    },
    [Symbol.asyncDispose]: () => service.drain(),
  };
  return service;
}

function deferred(): { promise: Promise<void>; resolve: () => void; reject: (error: unknown) => void } {
  let resolve: () => void = () => undefined;
  let reject: (error: unknown) => void = () => undefined;
  const promise = new Promise<void>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  promise.catch(() => undefined); // awaiting it is optional; not doing so must not end the process
  return { promise, resolve, reject };
}

export const stoppedAtOnce = (): WaybillError => new WaybillError("STOPPED", "stopped by a second signal before everything was settled");
