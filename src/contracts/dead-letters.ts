import type { Envelope } from "../core/event.ts";

export interface Letter {
  readonly envelope: Envelope;
  readonly topic: string;
  readonly consumer: string;
  readonly error: string;
  readonly attempts: number;
}

/** Where a subscriber puts what it cannot apply. */
export interface DeadLetters {
  /** Resolves once the letter is durable; only then may the delivery be acknowledged. */
  park(letter: Letter, signal: AbortSignal): Promise<void>;
}
