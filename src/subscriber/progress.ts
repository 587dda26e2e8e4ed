import type { Clock } from "../core/clock.ts";
import type { SubscriberStep } from "../core/path-events.ts";

/** Something that is waited for. */
export interface Step {
  readonly name: SubscriberStep;
  readonly topic: string;
  readonly id: string;
  /** It has got further: `ms` more from now. Nothing happens once it has ended. */
  extend(ms: number): void;
  end(): void;
}

/** Alive is not the same as progressing: a seat is renewed only while nothing is overdue. */
export interface Progress {
  begin(what: Pick<Step, "name" | "topic" | "id">, ms: number): Step;
  /** The steps that should have ended by now. */
  overdue(): readonly Step[];
}

export function createProgress(clock: Clock): Progress {
  const due = new Map<Step, number>();
  return {
    begin(what, ms) {
      const step: Step = {
        ...what,
        extend(more) {
          if (due.has(step)) due.set(step, clock.monotonic() + more);
        },
        end: () => void due.delete(step),
      };
      due.set(step, clock.monotonic() + ms);
      return step;
    },
    overdue() {
      const now = clock.monotonic();
      return [...due].filter(([, by]) => by < now).map(([step]) => step);
    },
  };
}
