import type { PartitionReport } from "../../contracts/housekeeping.ts";

/** How many partitions there are beyond the current one. */
export const ahead = 3;
/** A partition with more events than this that must stay is not dropped. */
export const mostMoved = 10_000;
/** How often partition work gives way to transactions that use the table. */
export const tries = 3;
export const betweenTriesMs = 2_000;

export const nothing: PartitionReport = { created: [], dropped: [], events: 0, moved: 0, undone: [] };

/** Why a partition stays. */
export const undropped = (each: string) => ({
  full: `more than ${mostMoved} of its events are not published yet`,
  filled: "some of its events have not been archived yet",
  busy: `transactions that use the outbox stayed open; it was waited for ${tries} times, ${each} each`,
});
