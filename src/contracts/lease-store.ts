/** The live relays and the owners of the lanes, read in one snapshot. Times are the database's. */
export interface LaneTable {
  readonly lanes: readonly Lane[];
  /** Relays whose lease has not expired. The asking relay is one of them once it has renewed. */
  readonly live: readonly string[];
  /** The strategy of each live relay that passed one to `renew`. */
  readonly strategies: ReadonlyMap<string, string>;
  /** The time by the database's clock. Absent where the store does not report it; the relay then reports no ages of events. */
  readonly now?: Date;
}

export interface Lane {
  readonly lane: number;
  readonly owner: string | null;
  readonly epoch: bigint;
}

/**
 * A lane's row changes only when the lane changes its owner. A relay has one lease for all its lanes.
 * Each lane has an epoch that rises with every new owner, and so fences the old one.
 */
export interface LeaseStore {
  look(): Promise<LaneTable>;
  /**
   * Extends the relay's lease until `ttlMs` from now, by the database's clock. `window` is shown in status: how many events the relay
   * may have in flight. The other relays read `strategy` in the table: how this relay shares the lanes.
   */
  renew(relay: string, ttlMs: number, window?: number, strategy?: string): Promise<void>;
  /**
   * Takes the lanes that have no owner, or whose owner's lease has expired, and answers each one's new epoch. The events in a dead owner's
   * windows there become suspects.
   */
  take(relay: string, lanes: readonly number[]): Promise<ReadonlyMap<number, bigint>>;
  /** Gives lanes back. Lanes that the relay no longer owns stay as they are. */
  give(relay: string, lanes: readonly number[]): Promise<void>;
  /** Gives everything back and forgets the relay. */
  leave(relay: string): Promise<void>;
}
