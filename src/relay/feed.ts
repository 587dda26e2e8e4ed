import type { Claim, Outcome, OutboxStore } from "../contracts/outbox-store.ts";

/** Where a relay's windows come from. Polling is the only way in this version; the relay would not notice another one. */
export interface Feed {
  /** Yields windows until `draining` aborts, as many at once as may be unsettled. */
  windows(): AsyncIterableIterator<FedWindow>;
  /**
   * Resolves once the outcomes are durable, or cannot become so because the lanes are lost or the relay is stopping. Until `draining`
   * aborts, a feed may make `published` durable later. Such events count as open, since a crash sends them again.
   */
  settle(window: FedWindow, outcomes: readonly Outcome[]): Promise<void>;
  /** As the store's. */
  readonly payload: OutboxStore["payload"];
  /** As the store's, for the relay's lanes. What was released is read without a wait. */
  release(destination: string, limit: number): Promise<number>;
  /** Lanes of windows that are not settled yet. */
  lanesInUse(): ReadonlySet<number>;
  /** True when the last look found nothing to claim and every window is settled. */
  empty(): boolean;
}

/** Events that a feed has read. What else it knows of them is its own. */
export interface FedWindow {
  /** By seq, ascending. */
  readonly claims: readonly Claim[];
  /**
   * By the monotonic clock, a moment before the window's read began: followers of what was settled as not published before that moment are
   * not in here. It never goes back from one window to the next.
   */
  readonly asOf: number;
}

/** Whether this window's only event has a payload that is still to be read. In a window with others, an unread event is to be parked. */
export const isToBeRead = ([first, ...others]: readonly Claim[]): boolean => first?.unread !== undefined && others.length === 0;
