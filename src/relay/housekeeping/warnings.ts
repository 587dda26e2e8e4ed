import type { Holder, Watch } from "../../contracts/housekeeping.ts";
import { inWords } from "../../core/in-words.ts";
import type { WatchWarning } from "../../core/path-events.ts";

/** The values above which the watch warns. */
export interface Thresholds {
  /** An open transaction that has written something. @default 1 minute */
  readonly writerMs: number;
  /** A holder that keeps dead rows from being cleaned up. @default 10 minutes */
  readonly horizonMs: number;
  /** @default 1000000 */
  readonly deadRows: number;
  /** The size of the outbox with its indexes. @default no limit */
  readonly bytes: number;
}

export const defaultThresholds: Thresholds = { writerMs: 60_000, horizonMs: 600_000, deadRows: 1_000_000, bytes: Infinity };

/** Where a holder's age is unknown, the number of transactions begun since decides: on a quiet database a holder does no harm. */
const manyTransactions = 10_000;

/** What an operator should look at, with the holder that is to blame for it. */
export function warningsOf(watch: Watch, thresholds: Thresholds): readonly WatchWarning[] {
  const warnings: WatchWarning[] = [];
  const writer = late(watch.writer, thresholds.writerMs);
  if (writer !== null)
    warnings.push({
      what: "writer",
      holder: nameOf(writer),
      text: `${tell(writer)}: until it ends, claims look at more and more rows`,
    });
  const horizon = late(watch.horizon, thresholds.horizonMs);
  if (horizon !== null)
    warnings.push({
      what: "horizon",
      holder: nameOf(horizon),
      text: `${tell(horizon)}: until it ends, rows that were deleted or replaced cannot be cleaned up`,
    });
  if (over(watch.deadRows, thresholds.deadRows)) {
    const why = horizon === null ? "is vacuum keeping up?" : `${nameOf(horizon)} keeps them from being cleaned up`;
    warnings.push({ what: "dead-rows", holder: nameOf(horizon), text: `the outbox has ${watch.deadRows} dead rows: ${why}` });
  }
  if (over(watch.bytes, thresholds.bytes))
    warnings.push({ what: "bytes", holder: null, text: `the outbox has ${watch.bytes} bytes, more than ${thresholds.bytes}` });
  return warnings;
}

const over = (value: number | "unknown", most: number): boolean => value !== "unknown" && value > most;

function late(holder: Watch["writer"], ms: number): Holder | null {
  if (holder === null || holder === "unknown") return null;
  const known = holder.ageMs === "unknown" ? over(holder.transactions, manyTransactions) : holder.ageMs > ms;
  return known ? holder : null;
}

const kinds = { session: "session", prepared: "prepared transaction", slot: "replication slot" } as const;

function nameOf(holder: Holder): string;
function nameOf(holder: Holder | null): string | null;
function nameOf(holder: Holder | null): string | null {
  return holder === null ? null : `${kinds[holder.kind]} ${holder.name}`;
}

/** Describes the holder and its age, as far as this role may see them. */
export function tell(holder: Holder): string {
  const { user, application, state, ageMs, transactions } = holder;
  const known = [user === "" ? "" : `user ${user}`, application === "" ? "" : `application ${application}`, `state ${state}`];
  const since = ageMs === "unknown" ? `${transactions} transactions` : inWords(ageMs);
  const does = holder.kind === "slot" ? "has not moved" : "has been open";
  return `${nameOf(holder)} (${known.filter((part) => part !== "").join(", ")}) ${does} for ${since}`;
}
