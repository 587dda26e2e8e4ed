import type { Housekeeping, PartitionReport } from "../contracts/housekeeping.ts";
import type { Action, Operator, PurgeOptions } from "../contracts/operator.ts";

/** What of a store housekeeping works with. */
export interface Kept {
  readonly operator: Operator;
  readonly housekeeping?: Housekeeping;
}

export interface Purged {
  readonly events: number;
  /** Partitions that were dropped whole. */
  readonly dropped: readonly string[];
  /** Events that were moved out of them, since they were not published. */
  readonly moved: number;
  /** What could not be done, and why. */
  readonly undone: readonly string[];
}

/** Whole partitions before single events; but where there is an archive, it is given every event before its partition goes. */
export async function purgeStore({ operator, housekeeping }: Kept, before: Date, by: Action, options: PurgeOptions): Promise<Purged> {
  const { archive, signal } = options;
  const emptied = archive !== undefined;
  const drop = async (): Promise<PartitionReport | undefined> =>
    by.dryRun ? undefined : housekeeping?.partitions?.drop(before, by.who, { emptied, ...(signal === undefined ? {} : { signal }) });
  const first = emptied ? undefined : await drop();
  const events = await operator.purge(before, by, options);
  const report = emptied ? await drop() : first;
  return {
    events: events + (report?.events ?? 0),
    dropped: report?.dropped ?? [],
    moved: report?.moved ?? 0,
    undone: report?.undone ?? [],
  };
}
