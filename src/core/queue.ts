/** Work with a key in common runs one after the other, in the order of the calls; all other work side by side. */
export interface Queue<Key> {
  /** Settles as the work does. Work that fails does not keep its followers from running. */
  run<T>(keys: readonly Key[], work: () => T | Promise<T>): Promise<T>;
  /** Resolves when no work is left. */
  idle(): Promise<void>;
}

export function createQueue<Key>(): Queue<Key> {
  const last = new Map<Key, Promise<void>>();
  return {
    run(keys, work) {
      const before = keys.flatMap((key) => last.get(key) ?? []);
      const done = (before.length === 1 ? before[0]! : Promise.all(before)).then(work);
      const forget = (): void => {
        for (const key of keys) if (last.get(key) === ended) last.delete(key);
      };
      const ended = done.then(forget, forget);
      for (const key of keys) last.set(key, ended);
      return done;
    },
    async idle() {
      while (last.size > 0) await Promise.all(last.values());
    },
  };
}

/** One piece of work after the other. */
export interface Mutex {
  /** Settles as the work does. Urgent work goes before everything that waits. */
  run<T>(work: () => T | Promise<T>, urgent?: "urgent"): Promise<T>;
}

export function createMutex(): Mutex {
  const waiting: (() => void)[] = [];
  const urgentOnes: (() => void)[] = [];
  let busy = false;
  const next = (): void => {
    const begin = urgentOnes.shift() ?? waiting.shift();
    if (begin === undefined) busy = false;
    else begin();
  };
  return {
    async run(work, urgent) {
      if (busy) await new Promise<void>((begin) => (urgent === undefined ? waiting : urgentOnes).push(begin));
      busy = true;
      try {
        return await work();
      } finally {
        next();
      }
    },
  };
}
