import type { Letter } from "./dead-letters.ts";

export interface InboxKey {
  readonly consumer: string;
  readonly id: string;
}

export interface Seat {
  readonly consumer: string;
  readonly topic: string;
  /** Who sits: one subscriber process. */
  readonly owner: string;
}

export interface Inbox<Tx> {
  /**
   * The mark and the work commit together, or neither does; "seen" when they had done so before.
   * Two at once for one key: the second waits for the first, and works only if the first failed.
   * Rejects with TRANSACTION_LOST when the work ended the transaction itself: that is the event's own failure.
   * Rejects with EFFECT_UNFINISHED when a mark is there whose work never reached its end: a handler's statement committed it.
   */
  once(key: InboxKey, handlerVersion: number, work: (tx: Tx) => void | Promise<void>): Promise<"done" | "seen">;
  /** Counts a failed attempt durably, and says how many there are now. The event's mark takes the count away. */
  failed(key: InboxKey, error: string): Promise<number>;
  /**
   * Keeps a letter, for good as it is. The same message parked again adds nothing; another message under the same consumer, topic and id is
   * a letter beside it.
   */
  park(letter: Letter): Promise<void>;
  /**
   * Deletes up to `limit` marks older than this, and up to as many counts of attempts of which the last failed before it: those of one
   * consumer, or of all. Says how many of both; 0 means that none is left.
   */
  forget(before: Date, limit: number, consumer?: string): Promise<number>;
  /** Takes or renews the one seat of a consumer on a topic; false while another owner's seat has not run out. */
  sit(seat: Seat, ttlMs: number): Promise<boolean>;
  leave(seat: Seat): Promise<void>;
}
