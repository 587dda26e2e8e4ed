import type { AggregateName, LogPlace, LogPosition, LogTailer, LoggedTransaction } from "./log-tailer.ts";
import type { Claim, Holding, Outcome } from "./outbox-store.ts";
import type { TailSetup } from "./tail-setup.ts";

/** How a relay reads a database's log instead of polling its outbox. */
export interface Tail {
  readonly tailer: LogTailer;
  readonly ledger: TailLedger;
  readonly setup: TailSetup;
}

/** A place in the log at which a relay may begin to read, once everything that committed before it is settled. */
export interface Entrance {
  readonly place: LogPlace;
  /** What shows that it is: the store's own. Null where an orderly end left this place: then it is so. */
  readonly proof: string | null;
}

/** A relay's right to publish what the log says. It ends when any lane changes hands. */
export interface Tailing {
  readonly relay: string;
  readonly epoch: bigint;
  readonly from: LogPlace;
  /** The log's events up to this number are settled. */
  readonly floor: bigint;
  /** Commits up to here may have been published before: `unsettled` knows. */
  readonly doubt: LogPosition;
  /** The aggregates that have events in the table. */
  readonly detours: readonly AggregateName[];
}

/** An event that the relay read from the log and did not publish. It is to be the table's. */
export interface Handed {
  readonly claim: Claim;
  /** What became of it. Null: nothing did, and the relay will claim it from the table. */
  readonly outcome: Outcome | null;
  /** The transaction that inserted it. */
  readonly xid: string;
}

export interface Checkpoint {
  /** Every transaction up to here is settled. */
  readonly position: LogPosition;
  /** In the order in which the relay gave them up. */
  readonly handed: readonly Handed[];
  /** Published events above the floor, which the next relay would send again. */
  readonly published: readonly { readonly seq: bigint; readonly createdAt: Date; readonly xid: string }[];
  /** They are many: the floor is to rise over them, or their rows are to say so. */
  readonly crowded: boolean;
  /** Their rows are to say so, above the floor. A store that deletes published events does so in any case. */
  readonly tell: boolean;
  /** The relay ends in order: the next one may read on from this position. */
  readonly leaves: boolean;
}

export interface CheckpointReport {
  /** False: a lane has changed hands, and nothing was written. */
  readonly kept: boolean;
  /** The log's events up to this number are settled, whoever reads the table. */
  readonly floor: bigint;
  /** The rows of `published` say so now. */
  readonly told: boolean;
  /**
   * Handed events that were not written, since the row of theirs or of an earlier one cannot be seen yet, and published ones that were not
   * told, since theirs cannot. They have to be given again.
   */
  readonly unseen: ReadonlySet<bigint>;
}

/**
 * What the table knows of a relay that reads the log. An event is the log's for as long as its row is as it was inserted: pending, and neither
 * delayed nor retried. Any other event is the table's. Events of the log's are settled without a write, by the floor.
 *
 * The log shows a commit before its rows can be seen, so each write about an event counts its rows.
 */
export interface TailLedger {
  /**
   * With a place: the entrance there, to be used once `isSettled`. The place must be one from which on every commit can be read, whatever
   * commits from now on. Without: the one that an orderly end left, or null.
   */
  entrance(place?: LogPlace): Promise<Entrance | null>;
  /** Whether everything that committed before the entrance is settled. */
  isSettled(entrance: Entrance): Promise<boolean>;
  /** Null when a lane is not this relay's, not everything before the entrance is settled, or too many aggregates have events in the table. */
  enter(holding: Holding, entrance: Entrance): Promise<Tailing | null>;
  /** Of these transactions' events, those that are still the log's and not settled. Null: all of them, and of all that follow. */
  unsettled(tailing: Tailing, transactions: readonly LoggedTransaction[]): Promise<ReadonlySet<bigint> | null>;
  /** Durable when it resolves. */
  checkpoint(tailing: Tailing, what: Checkpoint): Promise<CheckpointReport>;
  /**
   * Which of these aggregates have no event left that is the table's, and which aggregates have a delayed event that is due within `ms`. The
   * latter counts as left.
   */
  detours(aggregates: readonly Detoured[], ms: number): Promise<DetourReport>;
}

/** An aggregate with the last transaction of the log that added an event of the table's to it; null: none did. */
export interface Detoured extends AggregateName {
  readonly xid: string | null;
}

export interface DetourReport {
  readonly over: readonly AggregateName[];
  readonly due: readonly AggregateName[];
}
