import type { Random } from "../../src/core/random.ts";
import type { Process, Scheduler } from "./scheduler.ts";

/** What is wrong with a server, or with the way to it. */
interface Conditions {
  /** How many things keep it down. */
  down: number;
  /** More on every way. */
  slowMs: number;
  /** How likely a request, or its answer, is lost. */
  loseRequest: number;
  loseAnswer: number;
}

export interface Server {
  readonly conditions: Conditions;
  /** The next call of these processes is never answered. */
  readonly hanging: Set<Process>;
  /** How much longer every way of these processes is. */
  readonly distances: Map<Process, number>;
  /** Whoever waits for an answer gets none. */
  cut(): void;
  /**
   * `execute` runs at the server, later, whatever becomes of the process meanwhile; its answer comes later still.
   * A call that fails on the way fails with what `failure` gives: `sent` when it may have been executed all the same.
   */
  call<T>(process: Process, execute: (trip: Trip) => T | Promise<T>, failure: (sent: boolean) => Error): Promise<T>;
}

/** The way back to the client and to the server again, between two statements. It fails when the link, or the client, has ended meanwhile. */
export type Trip = () => Promise<void>;

interface Links {
  readonly latencyMs: number;
  /** When a client gives up on an answer. */
  readonly timeoutMs: number;
}

export function createServer(scheduler: Scheduler, random: Random, { latencyMs, timeoutMs }: Links): Server {
  const conditions: Conditions = { down: 0, slowMs: 0, loseRequest: 0, loseAnswer: 0 };
  const hanging = new Set<Process>();
  const distances = new Map<Process, number>();
  let cuts = 0;
  const wayOf = (process: Process) => {
    const usualMs = latencyMs + (distances.get(process) ?? 0);
    return (): number => usualMs * (0.2 + random.next() ** 2 * 3) + conditions.slowMs * random.next();
  };
  const lost = (odds: number): boolean => odds > 0 && random.next() < odds;
  return {
    conditions,
    hanging,
    distances,
    cut: () => void cuts++,
    call: (process, execute, failure) =>
      new Promise((resolve, reject) => {
        if (!process.alive) return;
        const way = wayOf(process);
        if (hanging.delete(process)) return void (process.hung = true);
        const fail = (ms: number, sent: boolean): void => void scheduler.after(ms, () => reject(failure(sent)), process);
        if (conditions.down > 0) return fail(way(), false);
        if (lost(conditions.loseRequest)) return fail(timeoutMs, true);
        const asked = cuts;
        const answer = (settle: () => void): void => {
          if (cuts !== asked || conditions.down > 0) fail(way(), true);
          else if (lost(conditions.loseAnswer)) fail(timeoutMs * random.next(), true);
          // What is on its way when the link breaks does not arrive.
          else scheduler.after(way(), () => (cuts === asked ? settle() : reject(failure(true))), process);
        };
        scheduler.after(way(), () => {
          if (cuts !== asked || conditions.down > 0) return fail(way(), true);
          const trip: Trip = () =>
            new Promise((there, gone) => {
              const arrive = (): void => (cuts !== asked || conditions.down > 0 || !process.alive ? gone(failure(true)) : there());
              scheduler.after(way() + way(), arrive);
            });
          new Promise<Awaited<ReturnType<typeof execute>>>((done) => done(execute(trip) as never)).then(
            (value) => answer(() => resolve(value)),
            (error: unknown) => answer(() => reject(error)),
          );
        });
      }),
  };
}
