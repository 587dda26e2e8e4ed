import type { Clock } from "../../core/clock.ts";
import type { Housekeeping, PartitionReport } from "../../contracts/housekeeping.ts";
import type { Action, Operator, PurgeOptions } from "../../contracts/operator.ts";

/** The parts of a store that housekeeping works with. */
export interface Kept {
  readonly operator: Operator;
  readonly housekeeping?: Housekeeping;
}

/** The pause after a batch, in multiples of the time it took: the database is for publishing first. */
const pausePerBatch = 3;
const longestPauseMs = 2_000;

export interface Purged {
  readonly events: number;
  /** Partitions that were dropped whole. */
  readonly dropped: readonly string[];
  /** Events that were moved out of them, since they were not published. */
  readonly moved: number;
  /** What could not be done with partitions, and why. */
  readonly undone: readonly string[];
  /** Texts about events that stay because the archive could not be given them. */
  readonly kept: readonly string[];
}

/** How many of the events that stay are named. The others are only counted. */
const named = 10;

/** Drops whole partitions, then purges events. With an archive it purges first: the archive gets every event before its partition goes. */
export async function purgeStore({ operator, housekeeping }: Kept, before: Date, by: Action, options: PurgeOptions): Promise<Purged> {
  const { archive, signal } = options;
  const emptied = archive !== undefined;
  const drop = async (): Promise<PartitionReport | undefined> =>
    by.dryRun ? undefined : housekeeping?.partitions?.drop(before, by.who, { emptied, ...(signal === undefined ? {} : { signal }) });
  const first = emptied ? undefined : await drop();
  const kept: string[] = [];
  let more = 0;
  const events = await operator.purge(before, by, {
    ...options,
    kept({ id }, why) {
      if (kept.length === named) more++;
      else kept.push(`event ${id} is past its retention and stays, since the archive cannot be given its payload: ${why}`);
    },
  });
  const report = emptied ? await drop() : first;
  return {
    events: events + (report?.events ?? 0),
    dropped: report?.dropped ?? [],
    moved: report?.moved ?? 0,
    undone: report?.undone ?? [],
    kept:
      more === 0
        ? kept
        : [...kept, `${more} more events are past their retention and stay, since the archive cannot be given their payloads`],
  };
}

/** Pauses several times as long as the work took: a purge at full load must not slow the relay down. */
export function pauses(clock: Clock, signal: AbortSignal): () => Promise<void> {
  let last = clock.monotonic();
  return async () => {
    await clock.sleep(Math.min(pausePerBatch * (clock.monotonic() - last), longestPauseMs), signal);
    last = clock.monotonic();
  };
}
