import { createBag } from "./bag.ts";
import { systemClock, type Clock } from "./clock.ts";

/**
 * Time limits of many short waits, on one timer: a timer and a signal for each statement and each handler cost more than the waiting.
 * The timer does not keep the process alive: the waiting caller has a socket or a loop of its own that does.
 */
export interface Deadlines {
  /** Calls `late` after `ms`, unless the returned function is called before. */
  set(ms: number, late: () => void): () => void;
  /** The result of `work`, or null after `ms`. The work itself then goes on, and its failure is ignored. */
  within<T>(ms: number, work: Promise<T>): Promise<T | null>;
}

interface Deadline {
  readonly at: number;
  readonly late: () => void;
  place: number;
}

export function createDeadlines(clock: Clock): Deadlines {
  const open = createBag<Deadline>();
  let wakesAt = Infinity;
  const wakeAt = (at: number): void => {
    if (at >= wakesAt) return;
    wakesAt = at;
    void clock.sleep(at - clock.monotonic(), undefined, "idle").then(() => {
      if (wakesAt === at) look();
    });
  };
  const look = (): void => {
    wakesAt = Infinity;
    const now = clock.monotonic();
    let next = Infinity;
    for (const deadline of open.things()) {
      if (deadline.at > now) next = Math.min(next, deadline.at);
      else if (open.remove(deadline)) deadline.late();
    }
    wakeAt(next);
  };
  const set: Deadlines["set"] = (ms, late) => {
    const deadline = { at: clock.monotonic() + ms, late, place: 0 };
    open.put(deadline);
    wakeAt(deadline.at);
    return () => void open.remove(deadline);
  };
  return {
    set,
    within: <T>(ms: number, work: Promise<T>) =>
      new Promise<T | null>((resolve, reject) => {
        const off = set(ms, () => resolve(null));
        work.then(
          (value) => {
            off();
            resolve(value);
          },
          (error: unknown) => {
            off();
            reject(error);
          },
        );
      }),
  };
}

/** For the answers of servers. */
export const systemDeadlines: Deadlines = createDeadlines(systemClock);
