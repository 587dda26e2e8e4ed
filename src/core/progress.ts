import { createBag } from "./bag.ts";
import type { Clock } from "./clock.ts";

/** Something that is waited for. */
export interface Step {
  /** The step has made progress: it has `ms` more from now. Does nothing once the step has ended. */
  extend(ms: number): void;
  end(): void;
}

/** Alive is not the same as progressing: a lease or a seat is renewed only while no step is overdue. */
export interface Progress<About extends object = object> {
  begin(about: About, ms: number): About & Step;
  /** The steps that should have ended by now. */
  overdue(): readonly (About & Step)[];
}

export function createProgress<About extends object = object>(clock: Clock): Progress<About> {
  const open = createBag<{ by: number; readonly step: About & Step; place: number }>();
  return {
    begin(about, ms) {
      const extend = (more: number): void => void (due.by = clock.monotonic() + more);
      const due = { by: clock.monotonic() + ms, step: { ...about, extend, end: () => void open.remove(due) }, place: 0 };
      open.put(due);
      return due.step;
    },
    overdue() {
      const now = clock.monotonic();
      return open
        .things()
        .filter(({ by }) => by < now)
        .map(({ step }) => step);
    },
  };
}

/** The work as one step. */
export async function stepping<T>(progress: Progress, ms: number, work: () => Promise<T>): Promise<T> {
  const step = progress.begin({}, ms);
  try {
    return await work();
  } finally {
    step.end();
  }
}
