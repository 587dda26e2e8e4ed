import type { Claim, Holding, Window } from "../../contracts/outbox-store.ts";
import type { ReadRow } from "./stored.ts";

export const nothing: Window = { id: null, claims: [], suspects: 0, destinations: [], more: false };

/** How many delayed rows one claim makes ready, or waits for. If there are more, the next claim continues. */
export const rowsPerStep = 10_000;
/** How many rows of held aggregates one claim takes out of its way. */
export const blockedPerClaim = 5_000;
/** Limit on the rows read that only a narrow claim may take. */
export const narrowAtOnce = 1_000;

/** An aggregate's hold. */
export interface HeldBy {
  readonly cause: bigint;
  /** The aggregate waits for a topic. */
  readonly waits: boolean;
  /** Null while held; otherwise events up to this one may go. */
  readonly freeTo: bigint | null;
}

/** Whether a claim may take the event. */
export function mayGo(seq: bigint, held: HeldBy | null): boolean {
  if (held === null) return true;
  return held.freeTo === null ? !held.waits && seq === held.cause : seq <= held.freeTo;
}

/**
 * How many of these events a narrow claim takes from the front: no suspect goes with more events than a tenth of the dead relay's window that
 * it was in. `widths` are the widths of those windows, infinite for an event that is no suspect. A suspect further back does not count: one
 * from a small window would make all before it go alone.
 */
export function narrowWidth(widths: readonly number[], limit: number): number {
  let most = limit;
  for (const [taken, width] of widths.entries()) {
    most = Math.min(most, Math.max(1, Math.floor(width / 10)));
    if (taken >= most) return taken;
  }
  return widths.length;
}

/** Another lane comes first each time, so that a small limit starves none. */
export function rotated(lanes: readonly number[], turn: number): readonly number[] {
  const first = lanes.length === 0 ? 0 : turn % lanes.length;
  return [...lanes.slice(first), ...lanes.slice(0, first)];
}

/** `unread`: how many bytes the payload takes if the claim did not read it, otherwise null. */
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
