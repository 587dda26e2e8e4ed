import type { Letter } from "../core/letter.ts";

export interface InboxKey {
  readonly consumer: string;
  readonly id: string;
}

/** An event, or several of one consumer that are applied together, no two of them the same. */
export interface InboxKeys extends InboxKey {
  readonly also?: readonly string[];
}

export interface Seat {
  readonly consumer: string;
  readonly topic: string;
  /** The subscriber process that has the seat. */
  readonly owner: string;
}

/** What became of an event: applied now, applied before, or parked with a letter. */
export type Applied = "done" | "seen" | "parked";

/**
 * The work of the transaction. `fresh` has the ids of the events that have no mark yet. Work that applies several of them one after the
 * other awaits `next` with the ids of each before it begins with them, and applies them with the handle that `next` answers.
 */
export type OnceWork<Tx> = (tx: Tx, fresh: ReadonlySet<string>, next: NextWork<Tx>) => void | Promise<void>;

/**
 * Takes back the handle that it answered before. Rejects when what ran before it has ended the transaction: whatever ran after it would
 * commit by itself. It may also reject when a handler undid what others had done: if it does not, `once` does.
 */
export type NextWork<Tx> = (ids: readonly string[]) => Tx | Promise<Tx>;

export interface Inbox<Tx> {
  /**
   * Commits the mark and the work together, or neither. Answers "seen" when an earlier call has committed them, and "parked" when the event
   * has a letter. `letter` is the number of a redriven letter: the work then runs all the same, and the same commit deletes the letter. If
   * that letter is gone, or not redriven, the answer is "seen". If another transaction holds it, the call rejects instead of waiting.
   * Of two concurrent calls for one key, the second waits for the first, and runs its work only if the first failed.
   * Rejects with TRANSACTION_LOST when the work ended the transaction itself. That counts as a failure of the event.
   * Rejects with EFFECT_UNFINISHED when it finds a mark whose work never finished: a statement of the handler committed that mark. Or the work
   * went on behind its own ROLLBACK, where a statement may be committed by itself: then `once` leaves such marks of the events that were
   * begun together, and rejects. They are not applied again.
   * With `also`, all marks and the work commit together, or nothing does: if one event is refused, all are. The work runs when at least one
   * of them has no mark yet. The answer is for `id`. When the work for one event commits all the same, and the call rejects, that one may
   * have an unfinished mark. What was applied before it then has its mark and its effect, or neither, and what comes after it has neither.
   * One event is tried again when it lost a conflict with another transaction. Several are not: the call rejects.
   */
  once(keys: InboxKeys, handlerVersion: number, work: OnceWork<Tx>, letter?: bigint): Promise<Applied>;
  /** Counts a failed attempt durably, and answers how many there are now. Writing the event's mark deletes the count. */
  failed(key: InboxKey, error: string): Promise<number>;
  /**
   * Keeps a letter, and marks its event, so that a late copy is not applied behind its followers. The mark deletes the count of attempts. A
   * message that is no event has no mark. Parking the same message again changes nothing. Another message with the same consumer, topic and
   * id becomes a second letter. When a redriven letter failed `again`, its reason, attempts and version are replaced.
   */
  park(letter: Letter): Promise<void>;
  /**
   * Deletes up to `limit` marks that are older than `before`, and up to `limit` counts whose last attempt failed before it: those of one
   * consumer, or of all. Answers how many rows it deleted. 0 means that nothing old is left.
   */
  forget(before: Date, limit: number, consumer?: string): Promise<number>;
  /** Takes or renews the only seat of a consumer on a topic. Answers false until another owner's seat expires. */
  sit(seat: Seat, ttlMs: number): Promise<boolean>;
  /** Frees the seat. Its row stays: it tells operators that this consumer reads this topic. */
  leave(seat: Seat): Promise<void>;
}
