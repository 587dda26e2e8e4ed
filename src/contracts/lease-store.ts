/** Who is alive and who owns which lane, in one consistent look. Times are the database's. */
export interface LaneTable {
  readonly lanes: readonly Lane[];
  /** Relays whose lease has not run out, the asking one included once it has renewed. */
  readonly live: readonly string[];
  /** The strategy of each live relay that has told one. */
  readonly strategies: ReadonlyMap<string, string>;
}

export interface Lane {
  readonly lane: number;
  readonly owner: string | null;
  readonly epoch: bigint;
}

/**
 * Lane rows change only when lanes change hands. A relay's lease is one for all its lanes;
 * each lane has an epoch that rises with every new owner, and fences the old one.
 */
export interface LeaseStore {
  look(): Promise<LaneTable>;
  /**
   * The relay lives until `ttlMs` from now, by the database's clock. `window` is for status: how many events it may have
   * in flight. `strategy` is for the other relays, who find it in the table: how it shares the lanes.
   */
  renew(relay: string, ttlMs: number, window?: number, strategy?: string): Promise<void>;
  /**
   * Takes those of the lanes that have no owner or whose owner's lease has run out, and says under which epoch.
   * What a dead owner had in its windows there becomes suspect.
   */
  take(relay: string, lanes: readonly number[]): Promise<ReadonlyMap<number, bigint>>;
  /** Gives lanes back; those that are not its own any more are left alone. */
  give(relay: string, lanes: readonly number[]): Promise<void>;
  /** Gives everything back and forgets the relay. */
  leave(relay: string): Promise<void>;
}
