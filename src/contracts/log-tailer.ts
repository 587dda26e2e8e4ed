import type { Envelope } from "../core/event.ts";

/** A position in a log as the database writes it: a WAL position of PostgreSQL, a GTID position of MariaDB. Only the store compares them. */
export type LogPosition = string;

/** A position means nothing in the log of another server. */
export interface LogPlace {
  readonly system: string;
  readonly position: LogPosition;
}

/** An event as it was inserted. Its lane is not in the log. */
export interface LoggedEvent {
  readonly envelope: Envelope;
  /** Failed attempts so far: plain SQL may insert any number. */
  readonly failures: number;
  /** Why the row cannot be published, in words. The envelope then holds what could be read of the row. */
  readonly unreadable?: string;
  /** It is too large to be taken from the log. Of the envelope, only `seq` and the aggregate's names are right; the table has it whole. */
  readonly large?: true;
}

/** A committed transaction, or a part of a large one. */
export interface LoggedTransaction {
  readonly xid: string;
  readonly commit: LogPosition;
  /** Where it ends. Null: the next transaction in the log is the next part of this one. */
  readonly end: LogPosition | null;
  /**
   * The events that are the log's: pending, and neither delayed nor retried. Every other row is the table's. May be empty in the last part of
   * a large transaction.
   */
  readonly events: readonly LoggedEvent[];
  /** The aggregates of other rows that it inserted: those are the table's. */
  readonly others: readonly OtherRow[];
}

export interface OtherRow extends AggregateName {
  /** When it may be published; null: at once. */
  readonly dueAt: Date | null;
}

/** Names an aggregate. */
export type AggregateName = Pick<Envelope, "aggregateType" | "aggregateId">;

export interface LogBatch {
  /** In the order of their commits. Transactions without events are left out. */
  readonly transactions: readonly LoggedTransaction[];
  /** Whatever committed before this position is in this batch or in an earlier one. It moves without events too. */
  readonly end: LogPosition;
}

/**
 * Batches in the order of commits. While nobody asks for the next batch, at most a bounded part of the log is read ahead; the connection
 * stays alive for as long as that takes. Leaving the loop, `close` and the signal end the reading, and none of them rejects. Every failure is
 * a LogUnreadable, after the batches that arrived before it.
 */
export interface LogReading extends AsyncIterable<LogBatch> {
  /** The server may forget the log up to here. Nothing else ever confirms a position. */
  confirm(position: LogPosition): void;
  /** Resolves once whatever had committed before this call has been dealt with. False: the reading is over before that. */
  upToNow(): Promise<boolean>;
  /** Bytes of the message that is arriving, or 0: a large event counts before it is there. */
  arriving(): number;
  close(): Promise<void>;
}

export type LogStanding =
  /** No slot. */
  | { readonly state: "missing" }
  /** The slot is being made. `waitsFor`: the transaction that has to end first. */
  | { readonly state: "preparing"; readonly waitsFor: string | null }
  /** What the slot needs is no longer kept. */
  | { readonly state: "lost"; readonly why: string }
  /** Nobody reads it. */
  | { readonly state: "unread" }
  /** The server holds the log back until a standby has it. */
  | { readonly state: "waits for standby"; readonly standby: string }
  | { readonly state: "lagging" }
  | { readonly state: "streaming" };

export type LogLook = LogStanding & {
  /** The reader has confirmed the log up to here. Null where there is no slot, or none that can be read yet. */
  readonly confirmed: LogPosition | null;
  /** How far the confirmed position is behind the end of the log. */
  readonly behindBytes: number;
  /** The same in time, where the server reports it. */
  readonly behindMs: number | null;
  /** How much of the log the server keeps for us. */
  readonly retainedBytes: number;
  /** How much more may be written before the server may forget what we need. Null: it never forgets. */
  readonly safeBytes: number | null;
};

/** Reads committed events from a database's log. The table stays the truth: without the log, the relay polls. */
export interface LogTailer {
  /** Rejects with a LogUnreadable where a setting of the server or a right of this role is missing. */
  check(): Promise<void>;
  look(): Promise<LogLook>;
  /**
   * Makes the server keep its log for us, and answers the place from which on every commit can be read. This waits for transactions that are
   * open. What it began is gone when it fails, or when the signal aborts.
   */
  prepare(signal: AbortSignal): Promise<LogPlace>;
  /** Resolves when the server has begun to send. Only the owner of all lanes reads: another reader is cut off. */
  read(from: LogPlace, signal: AbortSignal): Promise<LogReading>;
  /** The server keeps nothing for us any more. A reader is cut off. */
  drop(): Promise<void>;
}
