import type { Clock } from "../../src/core/clock.ts";

/** A simulated process. A dead one does nothing more; what a paused one was to do waits until it goes on. */
export interface Process {
  readonly name: string;
  readonly alive: boolean;
  readonly clock: Clock;
  /** A call of its is never answered. */
  hung: boolean;
  /** Moves its wall clock; monotonic time goes on as before. */
  jump(ms: number): void;
  crash(): void;
  /** `then` is for what dies with it: its connections. */
  onCrash(then: () => void): void;
  pause(ms: number): void;
  resume(): void;
  onPause(then: (ms: number) => void): void;
}

export interface Scheduler {
  /** Virtual milliseconds since the start. */
  readonly now: number;
  /** How much has happened. */
  readonly steps: number;
  /** What has happened, as a number. */
  readonly trace: string;
  process(name: string, skewMs?: number): Process;
  /** Runs `step` after `ms`: as part of a process, or of the world. The answer calls it off. */
  after(ms: number, step: () => void, owner?: Process): () => void;
  /** Lets time pass; everything that is due runs to its next wait before the next begins. */
  run(until: number): Promise<void>;
}

interface Step {
  at: number;
  order: number;
  readonly owner: SimProcess | null;
  run: (() => void) | null;
}

interface SimProcess extends Process {
  alive: boolean;
  pausedUntil: number;
  /** What came up while it was paused. */
  readonly waiting: Step[];
}

const start = Date.UTC(2030, 0, 1);

export function createScheduler(): Scheduler {
  const heap = createHeap();
  let now = 0;
  let order = 0;
  let steps = 0;
  let trace = 0x811c9dc5;
  const note = (value: number): void => void (trace = Math.imul(trace ^ value, 0x01000193) >>> 0);
  let processes = 0;

  const after = (ms: number, run: () => void, owner: SimProcess | null): (() => void) => {
    const step: Step = { at: now + Math.max(0, ms), order: order++, owner, run };
    heap.push(step);
    return () => void (step.run = null);
  };

  const clockOf = (self: SimProcess, skew: () => number): Clock => {
    const base = 1_000 * ++processes; // monotonic clocks of two machines have nothing in common
    return {
      now: () => Math.floor(start + now + skew()),
      monotonic: () => base + now,
      sleep: (ms, signal) =>
        new Promise((resolve) => {
          if (signal?.aborted) return resolve();
          const done = (): void => {
            cancel();
            signal?.removeEventListener("abort", done);
            resolve();
          };
          const cancel = after(ms, done, self);
          signal?.addEventListener("abort", done);
        }),
    };
  };

  return {
    get now() {
      return now;
    },
    get steps() {
      return steps;
    },
    get trace() {
      return trace.toString(16).padStart(8, "0");
    },
    process(name, skewMs = 0) {
      let skew = skewMs;
      const dying: (() => void)[] = [];
      const pausing: ((ms: number) => void)[] = [];
      const self = {
        name,
        alive: true,
        hung: false,
        pausedUntil: -1,
        waiting: [] as Step[],
        jump: (ms: number) => void (skew += ms),
        crash() {
          if (!self.alive) return;
          self.alive = false;
          for (const then of dying) then();
        },
        onCrash: (then: () => void) => void dying.push(then),
        pause(ms: number) {
          self.pausedUntil = Math.max(self.pausedUntil, now + ms);
          after(ms, () => now >= self.pausedUntil && self.resume(), null);
          for (const then of pausing) then(ms);
        },
        resume() {
          self.pausedUntil = -1;
          for (const step of self.waiting.splice(0)) heap.push(Object.assign(step, { at: now, order: order++ }));
        },
        onPause: (then: (ms: number) => void) => void pausing.push(then),
      } as SimProcess;
      Object.assign(self, { clock: clockOf(self, () => skew) });
      return self;
    },
    after: (ms, run, owner) => after(ms, run, (owner as SimProcess | undefined) ?? null),
    async run(until) {
      const turns = takeTurns();
      for (let step = heap.peek(); step !== undefined && step.at <= until; step = heap.peek()) {
        heap.pop();
        const { run, owner } = step;
        if (run === null || owner?.alive === false) continue;
        now = step.at;
        if (owner !== null && owner.pausedUntil > now) {
          owner.waiting.push(step);
          continue;
        }
        step.run = null;
        steps++;
        note(step.order);
        note(Math.floor(now * 1_000));
        run();
        await turns.settle();
      }
      turns.end();
      now = Math.max(now, until);
    },
  };
}

/**
 * Until everything that could run without waiting has run. A turn of the real event loop takes longer than all the work
 * in it, and there are thousands: what asks for one meanwhile is given it here.
 */
function takeTurns(): { settle(): Promise<void>; end(): void } {
  const asked: (() => void)[] = [];
  const { setImmediate } = globalThis;
  globalThis.setImmediate = ((then: (...values: unknown[]) => void, ...values: unknown[]) =>
    void asked.push(() => then(...values))) as never;
  // What is called on the next tick comes after every promise that is settled by now.
  const promises = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve));
  return {
    async settle() {
      await promises();
      while (asked.length > 0) {
        for (const then of asked.splice(0)) then();
        await promises();
      }
    },
    end() {
      globalThis.setImmediate = setImmediate;
      for (const then of asked.splice(0)) setImmediate(then);
    },
  };
}

function createHeap(): { push(step: Step): void; pop(): void; peek(): Step | undefined } {
  const steps: Step[] = [];
  const before = (a: Step, b: Step): boolean => a.at < b.at || (a.at === b.at && a.order < b.order);
  return {
    peek: () => steps[0],
    push(step) {
      let at = steps.push(step) - 1;
      while (at > 0) {
        const parent = (at - 1) >> 1;
        if (!before(step, steps[parent]!)) break;
        steps[at] = steps[parent]!;
        at = parent;
      }
      steps[at] = step;
    },
    pop() {
      const last = steps.pop()!;
      if (steps.length === 0) return;
      let at = 0;
      for (;;) {
        let child = 2 * at + 1;
        if (child >= steps.length) break;
        if (child + 1 < steps.length && before(steps[child + 1]!, steps[child]!)) child++;
        if (!before(steps[child]!, last)) break;
        steps[at] = steps[child]!;
        at = child;
      }
      steps[at] = last;
    },
  };
}
