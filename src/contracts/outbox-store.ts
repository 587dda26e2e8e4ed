import type { Added, Envelope, Row } from "../core/event.ts";

/** The only place where the user's transaction type appears; relay, admin and CLI never see it. */
export interface OutboxWriter<Tx> {
  /**
   * Inserts all rows in one statement inside the user's transaction, and refuses a handle that has none.
   * A store whose client is synchronous inserts and throws before it returns, so that a synchronous
   * transaction rolls back too.
   */
  append(tx: Tx, rows: readonly Row[]): Promise<readonly Added[]>;
  /** True where `append`, with the store's own client, has done all its work when it returns; what is only known later is refused then. */
  readonly synchronous: boolean;
}

/** Runs work in a transaction of the user's client; used by `outbox.transaction`. */
export interface Transactor<Db, Tx> {
  /** Commits when `work` resolves, rolls back when it fails; a lost COMMIT is COMMIT_UNKNOWN. */
  transaction<T>(db: Db, work: (tx: Tx) => T | Promise<T>): Promise<T>;
}

/** A relay's right to lanes, with the epoch under which each was won. */
export interface Holding {
  readonly relay: string;
  readonly lanes: ReadonlyMap<number, bigint>;
}

/** An event taken by a relay, under the lane and epoch it was taken with. */
export interface Claim {
  readonly envelope: Envelope;
  readonly lane: number;
  readonly epoch: bigint;
  /** Failed attempts so far. */
  readonly failures: number;
  /** How often in a row a relay died while it had this event alone in its window. */
  readonly deaths: number;
  /** Why the row cannot be carried, in words. The envelope then holds what could be read of it, and the relay parks it unsent. */
  readonly unreadable?: string;
  /**
   * How many bytes its payload takes, where the claim left it behind. The envelope's data is empty. If the event is alone in its window,
   * `payload` reads it. In a window with others it is larger than `largest`, and the relay never reads it.
   */
  readonly unread?: number;
}

/** What one claim took. It is committed before it is returned, so that a dead relay's window can be seen. */
export interface Window {
  /** Null when nothing was claimed and nothing was written. */
  readonly id: string | null;
  /** By seq, ascending. */
  readonly claims: readonly Claim[];
  /** Events of these lanes that only a narrow claim may take, and that could be taken now. */
  readonly suspects: number;
  /** Destinations that events of these lanes are held for. */
  readonly destinations: readonly string[];
  /** True when the limit cut the batch short, or holds are being released: claim again without a wait. */
  readonly more: boolean;
}

export interface ClaimRequest {
  readonly limit: number;
  /** This relay's windows that are not settled yet. Their events are left out; its other windows are forgotten. */
  readonly open: readonly string[];
  /** Takes only suspects and what comes before them in their aggregates, and a tenth of the window they died in at most. */
  readonly narrow: boolean;
  /**
   * How many payload bytes the window may hold. An event that alone has more, but not more than `largest`, is claimed alone and
   * `unread`: the relay reads its payload when that window is committed, so that an event that exhausts its memory is found like any other that ends it.
   * @default no bound
   */
  readonly bytes?: number;
  /**
   * How many payload bytes the sink takes at most. An event with more is `unread`, in its place among the others of the window, and takes
   * none of `bytes`: the relay parks it. The same goes for a payload that no process can hold.
   * @default what a process can hold
   */
  readonly largest?: number;
}

export type Outcome =
  | { readonly claim: Claim; readonly as: "published" }
  | { readonly claim: Claim; readonly as: "retry"; readonly afterMs: number; readonly error: string }
  /** `release`: followers go on at once (policy skip); otherwise they stay BLOCKED until an operator acts. */
  | { readonly claim: Claim; readonly as: "parked"; readonly error: string; readonly release: boolean }
  /** Not attempted, or not known to have arrived; costs no attempt. With `destination`, it waits for that destination. */
  | { readonly claim: Claim; readonly as: "returned"; readonly destination?: { readonly topic: string; readonly why: string } };

export interface SettleReport {
  readonly settled: number;
  /** Lanes that another relay has won: nothing of theirs was changed. */
  readonly lost: readonly number[];
}

/**
 * The table as the relay sees it. Rules that every store keeps:
 * - an aggregate's events are claimed in seq order, and never past one that is failed, dead or held;
 * - a window is durable before `claim` returns;
 * - `settle` checks, under lock, that this relay still owns each lane under the claim's epoch; expiry does not matter;
 * - `settle` may come in parts: what is settled leaves the window, and settling it again changes nothing, so that a
 *   settle can be repeated after an unknown outcome.
 */
export interface OutboxStore {
  claim(holding: Holding, request: ClaimRequest): Promise<Window>;
  /**
   * The payload of an `unread` claim. Rejects with ROW_UNREADABLE when it can never be read; any other failure is tried again.
   * A store that waits for a server stops reading when the signal aborts: it ends the connection, which is useless until the rest of the
   * payload has come, and rejects. A store that reads in parts calls `arrived` after each; the relay waits so long for a part, not for all.
   */
  payload(claim: Claim, signal: AbortSignal, arrived?: () => void): Promise<Uint8Array>;
  settle(relay: string, window: string, outcomes: readonly Outcome[]): Promise<SettleReport>;
  /**
   * Lets up to `limit` aggregates of these lanes that wait for the destination go on, longest waiting first.
   * Says how many; with 0, nothing waits there any more.
   */
  release(holding: Holding, destination: string, limit: number): Promise<number>;
}
