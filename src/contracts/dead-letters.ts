import type { Letter } from "../core/letter.ts";

/** Where a subscriber puts messages that it cannot apply. */
export interface DeadLetters {
  /**
   * Resolves once the letter is durable. Only then does the subscriber acknowledge the delivery. Rejects with `fatal(…)` when this place
   * will never take the letter, which then goes to the consumer's inbox. After any other error the subscriber tries again.
   */
  park(letter: Letter, signal: AbortSignal): Promise<void>;
  /** Rejects when this place would take no letter of this topic now. It writes nothing. */
  probe?(topic: string, consumer: string, signal: AbortSignal): Promise<void>;
}
