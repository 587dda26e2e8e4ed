import type { Claim, Holding, Window } from "../../contracts/outbox-store.ts";
import type { ReadRow } from "./stored.ts";

export const nothing: Window = { id: null, claims: [], suspects: 0, destinations: [], more: false };

/** How many delayed rows one claim makes ready, or waits for; with more than that, the next claim goes on. */
export const rowsPerStep = 10_000;
/** How many rows of held aggregates one claim takes out of its way. */
export const blockedPerClaim = 5_000;
/** How many rows that only a narrow window may take are looked at. */
export const narrowAtOnce = 1_000;

/** What holds an aggregate. */
export interface HeldBy {
  readonly cause: bigint;
  /** It waits for a destination. */
  readonly waits: boolean;
  /** Null while held; otherwise events up to this one may go. */
  readonly freeTo: bigint | null;
}

/** Whether a claim may take the event. */
export function mayGo(seq: bigint, held: HeldBy | null): boolean {
  if (held === null) return true;
  return held.freeTo === null ? !held.waits && seq === held.cause : seq <= held.freeTo;
}

/** How many suspects go at once: a tenth of the narrowest window that they died in, down to one. */
export const narrowWidth = (widths: readonly number[], limit: number): number =>
  Math.min(limit, Math.max(1, Math.floor(Math.min(...widths, limit * 10) / 10)));

/** Another lane comes first each time, so that a small limit starves none. */
export function rotated(lanes: readonly number[], turn: number): readonly number[] {
  const first = lanes.length === 0 ? 0 : turn % lanes.length;
  return [...lanes.slice(first), ...lanes.slice(0, first)];
}

/** `unread`: how many bytes its payload takes, where it was left behind. */
export function claimOf(
  { envelope, unreadable }: ReadRow,
  { lanes }: Holding,
  { lane, failures, deaths }: Pick<Claim, "lane" | "failures" | "deaths">,
  unread: number | null,
): Claim {
  const claim = { envelope, lane, epoch: lanes.get(lane)!, failures, deaths };
  if (unreadable === null && unread === null) return claim;
  return { ...claim, ...(unreadable === null ? {} : { unreadable }), ...(unread === null ? {} : { unread }) };
}
