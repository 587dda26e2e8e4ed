/** What a store does for its own tables besides the purge. A store leaves out what it cannot do. */
export interface Housekeeping {
  watch(): Promise<Watch>;
  /** Present where the outbox may be partitioned by time. */
  readonly partitions?: Partitions;
}

/** What makes the tables grow and the relay's scans long. "unknown" means that the store cannot tell, and null that there is none. */
export interface Watch {
  /** The size of the outbox with its indexes, or of the whole file where the store knows no more. */
  readonly bytes: number | "unknown";
  /** Rows of the outbox that were deleted or replaced and are not cleaned up yet. */
  readonly deadRows: number | "unknown";
  /** The oldest holder that keeps the database from cleaning up dead rows. */
  readonly horizon: Holder | "unknown" | null;
  /** The oldest open transaction that has written something. While it is open, claims look at more and more rows. */
  readonly writer: Holder | "unknown" | null;
  /** What this role may not see, and the grant that would change that. Null when the role sees everything. */
  readonly unseen: string | null;
}

/** Holds cleanup or claims back. "unknown": this role may not see the value. No field quotes a statement, which may hold secrets. */
export interface Holder {
  readonly kind: "session" | "prepared" | "slot";
  /** The session's process id, the prepared transaction's id, or the slot's name. */
  readonly name: string;
  readonly user: string;
  readonly application: string;
  /** Such as "idle in transaction". */
  readonly state: string;
  readonly ageMs: number | "unknown";
  /** How many transactions have begun since it began. */
  readonly transactions: number | "unknown";
}

/** Time partitions of the outbox. On a table without partitions, both methods do nothing. */
export interface Partitions {
  /** Creates the partitions that are needed next. */
  create(): Promise<PartitionReport>;
  /**
   * Drops the partitions whose events were all added before that moment. Events that are not published, or were published since, are moved
   * out first. With `emptied`, it drops a partition only when nothing else is left in it, because an archive must have every event that is
   * deleted. When the signal aborts, it ends before the next partition.
   */
  drop(before: Date, who: string, options: { readonly emptied: boolean; readonly signal?: AbortSignal }): Promise<PartitionReport>;
}

export interface PartitionReport {
  readonly created: readonly string[];
  readonly dropped: readonly string[];
  /** Events that were deleted with the dropped partitions. */
  readonly events: number;
  /** Events that were moved out of the dropped partitions, and wait as before. */
  readonly moved: number;
  /** What could not be done, and why. */
  readonly undone: readonly string[];
}
