import type { Outcome, Window } from "../contracts/outbox-store.ts";

/** Polling and tailing end here: the relay cannot tell them apart. */
export interface Feed {
  /** Windows one after the other, until the signal aborts. The next may be claimed while the last is under way. */
  windows(signal: AbortSignal): AsyncIterableIterator<FedWindow>;
  /** Resolves once the outcomes are durable, or cannot become so because the lanes are lost or the relay is stopping. */
  settle(window: FedWindow, outcomes: readonly Outcome[], stopping: AbortSignal): Promise<void>;
  /** Lanes of windows that are not settled yet. */
  lanesInUse(): ReadonlySet<number>;
  /** True when the last look found nothing to claim and every window is settled. */
  empty(): boolean;
}

export interface FedWindow extends Window {
  readonly id: string;
  /** Counts claims and settles of this relay: was a settle finished before this claim began? */
  readonly claimedAt: number;
}

/** Asks for the next item while the last is worked on. */
export async function* ahead<T>(source: AsyncIterableIterator<T>): AsyncIterableIterator<T> {
  let next = source.next();
  for (;;) {
    const { value, done } = await next;
    if (done === true) return;
    next = source.next();
    next.catch(() => undefined); // its failure is met by the next turn of this loop
    yield value as T;
  }
}
