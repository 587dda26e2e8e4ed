import type { Letter } from "../core/letter.ts";

export interface InboxKey {
  readonly consumer: string;
  readonly id: string;
}

export interface Seat {
  readonly consumer: string;
  readonly topic: string;
  /** The subscriber process that sits. */
  readonly owner: string;
}

export interface Inbox<Tx> {
  /**
   * Commits the mark and the work together, or neither. Answers "seen" when an earlier call has committed them.
   * Of two calls at once for one key, the second waits for the first, and runs its work only if the first failed.
   * Rejects with TRANSACTION_LOST when the work ended the transaction itself. That counts as a failure of the event.
   * Rejects with EFFECT_UNFINISHED when it finds a mark whose work never finished: a statement of the handler committed it.
   */
  once(key: InboxKey, handlerVersion: number, work: (tx: Tx) => void | Promise<void>): Promise<"done" | "seen">;
  /** Counts a failed attempt durably, and answers how many there are now. The event's mark deletes the count. */
  failed(key: InboxKey, error: string): Promise<number>;
  /**
   * Keeps a letter, and never changes it. Parking the same message again adds nothing. Another message with the same consumer, topic and
   * id becomes a second letter.
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
