import type { Envelope } from "../core/event.ts";

export interface Letter {
  readonly envelope: Envelope;
  readonly topic: string;
  readonly consumer: string;
  readonly error: string;
  readonly attempts: number;
  /** @default 1 */
  readonly handlerVersion?: number;
  /** The message as it came, where it could not be read as an event. The envelope then only names its place. */
  readonly raw?: Uint8Array;
}

/** Where a subscriber puts what it cannot apply. */
export interface DeadLetters {
  /**
   * Resolves once the letter is durable; only then may the delivery be acknowledged. Rejects with `fatal(…)` where this place will
   * never take this letter: then it goes to the consumer's inbox. After any other error it is tried again.
   */
  park(letter: Letter, signal: AbortSignal): Promise<void>;
}
