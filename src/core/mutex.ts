/** Runs one piece of work after the other, in the order of the calls; a failure is its caller's alone. */
export interface Mutex {
  run<T>(work: () => T | Promise<T>): Promise<T>;
}

export function createMutex(): Mutex {
  let last: Promise<unknown> = Promise.resolve();
  return {
    run<T>(work: () => T | Promise<T>): Promise<T> {
      const result = last.then(work);
      last = result.catch(() => undefined);
      return result;
    },
  };
}
