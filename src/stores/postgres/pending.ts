import type { Names } from "./names.ts";

/** Ready to be claimed by lane and seq: not delayed, or already available, which a set `next_attempt_at` shows. */
export const pending = "status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL)";
export const delayed = "status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL";
/** As it was inserted: the log's. */
export const logged = "status = 'PENDING' AND available_at IS NULL AND next_attempt_at IS NULL";
/** Ready, and the table's: a relay that reads the log finds these here and nowhere else. */
const detoured = "status = 'PENDING' AND next_attempt_at IS NOT NULL";
/** Published by a relay that reads the log, and not written since. */
export const tailed = (row: string, floor: string): string =>
  `(${row}.status = 'PENDING' AND ${row}.available_at IS NULL AND ${row}.next_attempt_at IS NULL AND ${row}.seq <= ${floor})`;
/** The server's clock as the statement runs, so after its snapshot. A bare volatile call would keep the planner from using the index. */
export const now = "(SELECT clock_timestamp())";
export const available = `${delayed} AND available_at <= ${now}`;

/** Which ready rows a relay takes from the table. */
export interface Reach {
  /** The log's rows up to here are published. 0 where the log was never read. */
  readonly tail: bigint;
  /** Only the table's rows: the others come from the log. */
  readonly detour: boolean;
}

/** Ready rows `o` of the lane `l.lane` above `floor`: the first ones by seq, or all where there is no limit. */
export function ready(n: Names, { tail, detour }: Reach, floor: string, which: string, limit?: string): string {
  const rows = (kind: string): string =>
    `SELECT o.* FROM ${n.outbox} o WHERE o.lane = l.lane AND ${kind} AND ${which}${limit === undefined ? "" : ` ORDER BY o.seq LIMIT ${limit}`}`;
  if (detour) return rows(`${detoured} AND o.seq > ${floor}`);
  if (tail === 0n) return rows(`${pending} AND o.seq > ${floor}`);
  // The index of all pending rows has the published ones up to `tail` too.
  const both = `(${rows(`${pending} AND o.seq > greatest(${floor}, ${tail})`)}) UNION ALL (${rows(`${detoured} AND o.seq > ${floor} AND o.seq <= ${tail}`)})`;
  return limit === undefined ? both : `SELECT * FROM (${both}) o ORDER BY o.seq LIMIT ${limit}`;
}
