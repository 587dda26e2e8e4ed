import type { Added, Envelope, Row } from "../core/event.ts";
import type { Reason } from "../core/reason.ts";

/** The only place where the user's transaction type appears. The relay and the command line never see it. */
export interface OutboxWriter<Tx> {
  /**
   * Inserts all rows in one statement inside the user's transaction, and refuses a handle without one.
   * A store with a synchronous client inserts and throws before it returns, so that a synchronous
   * transaction rolls back too.
   */
  append(tx: Tx, rows: readonly Row[]): Promise<readonly Added[]>;
  /** True where `append`, with the store's own client, has done all its work when it returns. An asynchronous schema is then refused. */
  readonly synchronous: boolean;
  /** Calls `then` once when the open transaction has ended. False where the client does not report the end. */
  onEnd?(tx: Tx, then: () => void): boolean;
}

/** Runs work in a transaction of the user's client; used by `outbox.transaction`. */
export interface Transactor<Db, Tx> {
  /** Commits when `work` resolves, and rolls back when it fails. When the COMMIT is lost, it rejects with COMMIT_UNKNOWN. */
  transaction<T>(db: Db, work: (tx: Tx) => T | Promise<T>): Promise<T>;
}

/** A relay's right to its lanes, with the epoch under which it took each. */
export interface Holding {
  readonly relay: string;
  readonly lanes: ReadonlyMap<number, bigint>;
}

/** An event that a relay claimed, with the lane and the epoch under which it did so. */
export interface Claim {
  readonly envelope: Envelope;
  readonly lane: number;
  readonly epoch: bigint;
  /** Failed attempts so far. */
  readonly failures: number;
  /** How many relays in a row crashed with this event alone in their window. */
  readonly deaths: number;
  /** Why the row cannot be published, in words. The envelope then holds what could be read of the row, and the relay parks it unsent. */
  readonly unreadable?: string;
  /**
   * How many bytes its payload takes, where the claim did not read it. The envelope's data is then empty. If the event is alone in its
   * window, `payload` reads it. In a window with others it is larger than `largest`, and the relay never reads it.
   */
  readonly unread?: number;
}

/** The events that one claim took. It is committed before `claim` returns, so that other relays can see a dead relay's window. */
export interface Window {
  /** Null when nothing was claimed and nothing was written. */
  readonly id: string | null;
  /** By seq, ascending. */
  readonly claims: readonly Claim[];
  /** How many events of these lanes only a narrow claim may take, and could take now. */
  readonly suspects: number;
  /** The records that events of these lanes wait under. */
  readonly destinations: readonly string[];
  /** True when the limit cut the window short, or holds are being released. The relay claims again without a wait. */
  readonly more: boolean;
}

export interface ClaimRequest {
  readonly limit: number;
  /** This relay's windows that are not settled yet. The claim leaves their events out, and forgets the relay's other windows. */
  readonly open: readonly string[];
  /** Takes no event that comes from the database's log. Other stores than those with a log know no such events. */
  readonly detour?: boolean;
  /** Takes only suspects and earlier events of their aggregates. No suspect goes with more events than a tenth of the window that it was in. */
  readonly narrow: boolean;
  /**
   * How many payload bytes the window may hold. An event that alone has more, but not more than `largest`, is claimed alone and
   * `unread`. The relay reads its payload after that window is committed. If the payload exhausts the relay's memory, the next relay
   * then finds the event alone in a dead relay's window. @default no bound
   */
  readonly bytes?: number;
  /**
   * How many payload bytes the sink takes at most. A larger event is `unread`, keeps its place among the others of the window, and takes
   * none of `bytes`. The relay parks it. The same goes for a payload that no process can hold. @default what a process can hold
   */
  readonly largest?: number;
}

export type Outcome =
  | { readonly claim: Claim; readonly as: "published" }
  | ({ readonly claim: Claim; readonly as: "retry"; readonly afterMs: number } & Reason)
  /** With `release`, followers go on at once (policy skip). Otherwise they stay BLOCKED until an operator acts. */
  | ({ readonly claim: Claim; readonly as: "parked"; readonly release: boolean } & Reason)
  /** Not attempted, or not known to have arrived. It costs no attempt. With `destination`, the event waits for that topic. */
  | { readonly claim: Claim; readonly as: "returned"; readonly destination?: Destination };

export interface Destination {
  readonly topic: string;
  readonly why: string;
  /** The record that it waits under. @default the topic's own */
  readonly under?: string;
}

export interface SettleReport {
  readonly settled: number;
  /** Lanes that this relay no longer owns under the claim's epoch. Nothing in them was changed. */
  readonly lost: readonly number[];
}

/**
 * The table as the relay sees it. Rules that every store keeps:
 * - `claim` takes an aggregate's events in seq order, and none behind an event that is failed, dead or held.
 * - A window is durable before `claim` returns.
 * - `settle` checks, under a lock, that this relay still owns each lane under the claim's epoch. An expired lease does not matter.
 * - `settle` may come in parts. What is settled leaves the window, and settling it again changes nothing, so that the relay can repeat
 *   a settle whose outcome it does not know.
 */
export interface OutboxStore {
  claim(holding: Holding, request: ClaimRequest): Promise<Window>;
  /**
   * The payload of an `unread` claim. Rejects with ROW_UNREADABLE when it can never be read. The relay retries after any other failure.
   * When the signal aborts, a store that waits for a server closes the connection and rejects: the connection would be useless until the
   * rest of the payload has come. A store that reads in parts calls `arrived` after each part, and the relay's deadline covers one part.
   */
  payload(claim: Claim, signal: AbortSignal, arrived?: () => void): Promise<Uint8Array>;
  settle(relay: string, window: string, outcomes: readonly Outcome[]): Promise<SettleReport>;
  /**
   * Releases up to `limit` aggregates of these lanes that wait for the topic, those that wait longest first.
   * Answers how many. 0 means that none waits for it any more. Deletes the record of this name in each of these lanes where nothing waits
   * under it any more; the record `otherTopics` where nothing waits for a topic without a record.
   */
  release(holding: Holding, destination: string, limit: number): Promise<number>;
  /** The topics that aggregates of any lane wait for, in the order of their bytes: the first `limit` of those after this one. */
  waitingFor(after: string, limit: number): Promise<readonly string[]>;
}
