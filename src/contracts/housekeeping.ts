/** What a store does for its own tables beside the purge, each part where it can. */
export interface Housekeeping {
  watch(): Promise<Watch>;
  /** Where the outbox may be partitioned by time. */
  readonly partitions?: Partitions;
}

/** What makes the tables grow and the relay's scans long. "unknown": the store cannot tell; null: there is none. */
export interface Watch {
  /** Of the outbox with its indexes; of the whole file, where that is all the store can tell. */
  readonly bytes: number | "unknown";
  /** Rows of the outbox that were deleted or replaced and are not cleaned up yet. */
  readonly deadRows: number | "unknown";
  /** The oldest that keeps dead rows from being cleaned up. */
  readonly horizon: Holder | "unknown" | null;
  /** The oldest open transaction that has written something: while it is open, claims look at more and more rows. */
  readonly writer: Holder | "unknown" | null;
  /** What this role may not see, and what would let it; null when it sees everything there is. */
  readonly unseen: string | null;
}

/** Who holds something back; "unknown" is what this role may not see. Never what it runs: a statement may hold secrets. */
export interface Holder {
  readonly kind: "session" | "prepared" | "slot";
  /** The session's process id, the prepared transaction's id, or the slot's name. */
  readonly name: string;
  readonly user: string;
  readonly application: string;
  /** Such as "idle in transaction". */
  readonly state: string;
  readonly ageMs: number | "unknown";
  /** How many transactions have begun since. */
  readonly transactions: number | "unknown";
}

/** Time partitions of the outbox. On a table without them, both do nothing. */
export interface Partitions {
  /** Makes those that are needed next. */
  create(): Promise<PartitionReport>;
  /**
   * Drops those whose events were all added before that moment; what is not published, or was published since, is moved
   * out first. `emptied`: only those of which nothing else is left, since an archive must have what is deleted.
   * Before the next one, it ends when the signal aborts.
   */
  drop(before: Date, who: string, options: { readonly emptied: boolean; readonly signal?: AbortSignal }): Promise<PartitionReport>;
}

export interface PartitionReport {
  readonly created: readonly string[];
  readonly dropped: readonly string[];
  /** Events that went with the dropped ones. */
  readonly events: number;
  /** Events that were moved out of them, and wait as before. */
  readonly moved: number;
  /** What could not be done, and why. */
  readonly undone: readonly string[];
}
