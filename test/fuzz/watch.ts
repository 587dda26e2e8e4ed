import { setTimeout as sleep } from "node:timers/promises";

/** Something that must not happen did, with what is needed to see it again. */
export class Failed extends Error {}

/** How long the good ones may take, and the hostile ones until they show: a busy machine takes its time, a stuck relay for ever. */
export const boundMs = 20_000;

export async function within(ms: number, what: () => string, done: () => Promise<boolean>): Promise<void> {
  for (const end = performance.now() + ms; !(await done());) {
    if (performance.now() > end) throw new Failed(`${what()} (after ${ms / 1_000} s)`);
    await sleep(15);
  }
}

/** Rejections and exceptions that nobody caught while `work` ran are its failure. */
export async function nothingUncaught<T>(work: () => Promise<T>): Promise<T> {
  const uncaught: unknown[] = [];
  const hear = (error: unknown): void => void uncaught.push(error);
  process.on("unhandledRejection", hear);
  process.on("uncaughtException", hear);
  try {
    const result = await work();
    await sleep(0);
    if (uncaught.length > 0) throw new Failed(`nobody caught ${String((uncaught[0] as Error)?.stack ?? uncaught[0]).slice(0, 600)}`);
    return result;
  } finally {
    process.off("unhandledRejection", hear);
    process.off("uncaughtException", hear);
  }
}

export const reasonOf = (error: unknown): string => String((error as Error)?.message ?? error).slice(0, 300);
