import { turn as nextTurn } from "../core/clock.ts";

/** A task's right to run. */
export interface Turn {
  /** Lets tasks of other keys run while this one waits. Its own followers still wait behind it. */
  aside<T>(wait: () => Promise<T>): Promise<T>;
}

/** How tasks that were given a member run together. */
interface Together<Member> {
  readonly most: number;
  /** Members with the same name never run together. Null: the member runs by itself. */
  nameOf(member: Member): string | null;
  /** Answers false when nothing was done. Then each member's task runs by itself. */
  run(members: readonly Member[], turn: Turn): Promise<boolean>;
}

/** Tasks of different keys run in parallel. Tasks of one key run one after the other, in the order they came. */
interface Turns<Member> {
  /** Settles as the task does. A task that fails does not keep its followers from running. */
  take(key: string, task: Task, member?: Member): Promise<void>;
  /** Resolves when no task is left. */
  idle(): Promise<void>;
}

type Task = (turn: Turn) => Promise<void>;

interface Waiting<Member> {
  readonly key: string;
  readonly task: Task;
  readonly member: Member | undefined;
  resolve(): void;
  reject(error: unknown): void;
}

export function createTurns<Member = never>(concurrency: number, together?: Together<Member>): Turns<Member> {
  /** By key, the tasks that wait behind the running ones. */
  const queues = new Map<string, Waiting<Member>[]>();
  /** The keys with waiting tasks of which none runs. */
  const ready: string[] = [];
  /** Tasks that stepped aside and want to go on. They come before those that have not begun. */
  const returning: (() => void)[] = [];
  const idlers: (() => void)[] = [];
  let free = concurrency;
  let filling = false;

  const leave = (): void => {
    const next = returning.shift();
    if (next !== undefined) return next();
    free += 1;
    fill();
  };
  const turn: Turn = {
    async aside(wait) {
      leave();
      try {
        return await wait();
      } finally {
        if (free > 0) free -= 1;
        else await new Promise<void>((resolve) => returning.push(resolve));
      }
    },
  };

  const fill = (): void => {
    while (free > 0 && ready.length > 0) {
      free -= 1; // before it runs: it may step aside at once
      void run(next());
    }
  };
  /** Waits for one turn of the event loop, so that tasks which come in it can run together. */
  const fillSoon = async (): Promise<void> => {
    if (filling) return;
    filling = true;
    await nextTurn();
    filling = false;
    fill();
  };

  /** The first waiting task, and as many behind it as may run together with it. */
  const next = (): Waiting<Member>[] => {
    const tasks: Waiting<Member>[] = [];
    const names = new Set<string>();
    const take = (queue: Waiting<Member>[]): boolean => {
      const { member } = queue[0]!;
      const name = member === undefined || together === undefined ? null : together.nameOf(member);
      if (tasks.length > 0 && (name === null || names.has(name))) return false;
      tasks.push(queue.shift()!);
      if (name === null) return false;
      names.add(name);
      return tasks.length < together!.most;
    };
    for (let more = true; more && ready.length > 0;) {
      const queue = queues.get(ready[0]!)!;
      const before = tasks.length;
      do more = take(queue);
      while (more && queue.length > 0);
      if (tasks.length > before) ready.shift();
    }
    return tasks;
  };

  const run = async (tasks: readonly Waiting<Member>[]): Promise<void> => {
    const [first] = tasks;
    try {
      if (tasks.length === 1) await first!.task(turn);
      else if (
        !(await together!.run(
          tasks.map(({ member }) => member!),
          turn,
        ))
      )
        return apart(tasks);
      for (const { resolve } of tasks) resolve();
    } catch (error) {
      for (const { reject } of tasks) reject(error);
    } finally {
      for (const key of new Set(tasks.map((task) => task.key))) done(key);
      leave();
    }
  };
  /** They come before all that waits. */
  const apart = (tasks: readonly Waiting<Member>[]): void => {
    for (const task of tasks.toReversed()) queues.get(task.key)!.unshift({ ...task, member: undefined });
  };
  const done = (key: string): void => {
    if (queues.get(key)!.length > 0) return void ready.push(key);
    queues.delete(key);
    if (queues.size === 0) for (const resolve of idlers.splice(0)) resolve();
  };

  return {
    take: (key, task, member) =>
      new Promise((resolve, reject) => {
        const queue = queues.get(key);
        const waiting = { key, task, member, resolve, reject };
        if (queue !== undefined) return void queue.push(waiting);
        queues.set(key, [waiting]);
        ready.push(key);
        if (together === undefined) fill();
        else void fillSoon();
      }),
    idle: () => (queues.size === 0 ? Promise.resolve() : new Promise((resolve) => idlers.push(resolve))),
  };
}
