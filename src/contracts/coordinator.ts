import type { Holding } from "./outbox-store.ts";

/** What a coordinator must know of the relay that it keeps lanes for. */
export interface Work {
  /** Every step under way is within its deadline. Without progress the lease is not renewed, so that others take over. */
  progress(): boolean;
  /** Lanes of which something is claimed and not settled; they are not given away before it is. */
  lanesInUse(): ReadonlySet<number>;
}

/** Keeps a relay's holding: wins lanes, gives them up for others, notices those it has lost. */
export interface Coordinator {
  /** The lanes of now; the map changes as lanes come and go. */
  readonly holding: Holding;
  /** For how long the lease is certain by the monotonic clock; at 0 or less nothing may be published. */
  trustedForMs(): number;
  /** The holding has as many lanes as it should have among the relays that live now. */
  settledIn(): boolean;
  /** Another relay owns these lanes now. */
  lost(lanes: readonly number[]): void;
  /** Wins, renews and gives until `leaving` aborts, then gives everything back; `stopping` ends it without that. */
  run(work: Work, signals: { readonly leaving: AbortSignal; readonly stopping: AbortSignal }, ready: () => void): Promise<void>;
}
