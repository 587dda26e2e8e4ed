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
  /** The subscriber process that sits. */
  readonly owner: string;
}

/** What became of an event: applied now, applied before, or set aside with a letter. */
export type Applied = "done" | "seen" | "parked";

/** What is done in the transaction, with the ids of those events that have no mark yet. */
export type OnceWork<Tx> = (tx: Tx, fresh: ReadonlySet<string>) => void | Promise<void>;

export interface Inbox<Tx> {
  /**
   * Commits the mark and the work together, or neither. Answers "seen" when an earlier call has committed them, and "parked" when the
   * event has a letter. With the number of that letter, once it was redriven, the work runs all the same, and the letter goes away with
   * the same commit. A letter that is gone, or not redriven, answers "seen". One that another transaction holds is not waited for: that rejects.
   * Of two calls at once for one key, the second waits for the first, and runs its work only if the first failed.
   * Rejects with TRANSACTION_LOST when the work ended the transaction itself. That counts as a failure of the event.
   * Rejects with EFFECT_UNFINISHED when it finds a mark whose work never finished: a statement of the handler committed it.
   * With `also`, the marks of all and the work commit together, or nothing does: one event that is refused refuses them all. The work runs
   * when one of them has no mark yet. The answer is for `id`.
   */
  once(keys: InboxKeys, handlerVersion: number, work: OnceWork<Tx>, letter?: bigint): Promise<Applied>;
  /** Counts a failed attempt durably, and answers how many there are now. The event's mark deletes the count. */
  failed(key: InboxKey, error: string): Promise<number>;
  /**
   * Keeps a letter, and marks its event, so that a late copy is not applied behind its followers. The mark deletes the count of attempts.
   * A message that is no event has no mark. Parking the same message again changes nothing. Another message with the same consumer,
   * topic and id becomes a second letter. Of a redriven letter that failed `again`, the reason, the attempts and the version are replaced.
   */
  park(letter: Letter): Promise<void>;
  /**
   * Deletes up to `limit` marks that are older than `before`, and up to `limit` counts whose last attempt failed before it: those of one
   * consumer, or of all. Answers how many rows it deleted. 0 means that nothing old is left.
   */
  forget(before: Date, limit: number, consumer?: string): Promise<number>;
  /** Takes or renews the only seat of a consumer on a topic. Answers false until another owner's seat expires. */
  sit(seat: Seat, ttlMs: number): Promise<boolean>;
  leave(seat: Seat): Promise<void>;
}
