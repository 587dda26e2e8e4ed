import { createQueue } from "../core/queue.ts";

/** A task's right to run. */
export interface Turn {
  /** Lets tasks of other keys run while this one waits. Its own followers still wait behind it. */
  aside<T>(wait: () => Promise<T>): Promise<T>;
}

/** Keys side by side, each key's tasks one after the other, in the order they came. */
interface Turns {
  /** Settles as the task does. A task that fails does not keep its followers from running. */
  take(key: string, task: (turn: Turn) => Promise<void>): Promise<void>;
  /** Resolves when no task is left. */
  idle(): Promise<void>;
}

export function createTurns(concurrency: number): Turns {
  let free = concurrency;
  const waiting: (() => void)[] = [];
  const queue = createQueue<string>();

  const enter = async (): Promise<void> => {
    if (free > 0) free -= 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
  };
  const leave = (): void => {
    const next = waiting.shift();
    if (next === undefined) free += 1;
    else next();
  };
  const turn: Turn = {
    async aside(wait) {
      leave();
      try {
        return await wait();
      } finally {
        await enter();
      }
    },
  };
  const run = async (task: (turn: Turn) => Promise<void>): Promise<void> => {
    await enter();
    try {
      await task(turn);
    } finally {
      leave();
    }
  };

  return {
    take: (key, task) => queue.run([key], () => run(task)),
    idle: queue.idle,
  };
}
