import type { Clock } from "../core/clock.ts";

/** The latest answer, at most `ms` old, a failure included. However many want it meanwhile, it is asked for once. */
export function recent<T>(ask: () => Promise<T>, ms: number, clock: Clock): () => Promise<T> {
  let latest: Promise<T> | null = null;
  let oldAt = Infinity;
  const ended = (): void => {
    oldAt = clock.monotonic() + ms;
  };
  return () => {
    if (latest !== null && clock.monotonic() < oldAt) return latest;
    latest = ask();
    oldAt = Infinity;
    latest.then(ended, ended);
    return latest;
  };
}
