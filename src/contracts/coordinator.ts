import type { Holding } from "./outbox-store.ts";

/** What a coordinator must know about its relay. */
export interface Work {
  /** True while every step under way is within its deadline. Otherwise the lease is not renewed, so that other relays take over. */
  progress(): boolean;
  /** Lanes with events that are claimed and not settled. The coordinator gives such a lane away only after they are settled. */
  lanesInUse(): ReadonlySet<number>;
}

/** Keeps a relay's holding: it takes lanes, gives some to other relays, and notices lanes that were lost. */
export interface Coordinator {
  /** The lanes that the relay owns now. The map changes with them. */
  readonly holding: Holding;
  /** How long the lease is still certain, by the monotonic clock. At 0 or less, the relay may not publish. */
  trustedForMs(): number;
  /** True when the holding has its share of the lanes among the relays that live now. */
  settledIn(): boolean;
  /** The time by the clock that writes `created_at`, in milliseconds. Null when the store has not reported it. */
  storeNow(): number | null;
  /** Tells the coordinator that another relay owns these lanes now. */
  lost(lanes: readonly number[]): void;
  /** Takes, renews and gives lanes until `leaving` aborts, then gives all of them back. After `stopping` it gives none back. */
  run(work: Work, signals: { readonly leaving: AbortSignal; readonly stopping: AbortSignal }, ready: () => void): Promise<void>;
}
