import type { Envelope } from "../core/event.ts";
import type { Action } from "./operator.ts";

/** The letters that consumers' inboxes keep, as an operator and a subscriber see them. */
export interface Letters {
  /** Letters by consumer, topic and cause, the largest group first, at most 100 groups. */
  groups(filter: LetterFilter): Promise<readonly LetterGroup[]>;
  /** Newest first, one page at a time. */
  list(filter: LetterFilter & { readonly beforeSeq?: bigint; readonly limit: number }): Promise<readonly LetterRecord[]>;
  /** The letter with its message. Null when it is gone. Rejects with ROW_UNREADABLE when another program wrote something into the row. */
  show(seq: bigint): Promise<WholeLetter | null>;
  /**
   * Gives letters back to their consumer, and to no other: its subscriber applies them again, with attempts counted from zero. A letter goes
   * away in the transaction that applies it. With `most`, only as many letters, the oldest first; with `after`, only those with a higher seq.
   * Rejects with NOT_FOUND or WRONG_STATE for an id that has no letter, or none that can be applied.
   */
  redrive(filter: LetterFilter, by: Action & { readonly most?: number; readonly after?: bigint }): Promise<LetterReport>;
  /** Deletes letters. Their marks stay: no late copy of the event is applied. */
  discard(filter: LetterFilter, by: Action): Promise<LetterReport>;
  /** Letters that were redriven and wait for their consumer, in the order in which they were parked. */
  redriven(consumer: string, topic: string, limit: number): Promise<readonly LetterRecord[]>;
}

/** Ids, or every letter that matches. */
export interface LetterFilter {
  readonly consumer?: string;
  readonly topic?: string;
  readonly ids?: readonly string[];
  readonly aggregateType?: string;
  readonly aggregateId?: string;
  readonly type?: string;
  /** Letters whose error, as LetterGroup shows it, begins with this: a code, the first words of an error, or all of it. */
  readonly error?: string;
}

/** Letters of one consumer on one topic that have one cause. */
export interface LetterGroup {
  readonly consumer: string;
  readonly topic: string;
  /** Code and text. */
  readonly error: string;
  readonly letters: number;
  /** How many of them were redriven, and wait for their consumer. */
  readonly redriven: number;
  /** When the oldest was parked. */
  readonly oldest: Date;
  /** The id of one of them. */
  readonly example: string;
}

export interface LetterRecord {
  /** Its number among all letters. Letters of one aggregate were parked in this order. */
  readonly seq: bigint;
  readonly consumer: string;
  readonly topic: string;
  /** The event's id. For a message that is no event, a name made from the message's place. */
  readonly id: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly type: string;
  readonly errorCode: string;
  readonly error: string;
  readonly errorDetail: string;
  readonly attempts: number;
  readonly handlerVersion: number;
  readonly parkedAt: Date;
  /** Null unless it was redriven and waits for its consumer. */
  readonly redrivenAt: Date | null;
  /** The length of its data, or of the raw message. */
  readonly bytes: number;
  /** Why no handler can receive it: the message is no event, or the inbox could not store all of it. */
  readonly unfit: "no event" | "cut" | null;
}

export interface WholeLetter extends LetterRecord {
  readonly envelope: Envelope;
  /** The message as it came, where it is no event. */
  readonly raw: Uint8Array | null;
}

export interface LetterReport {
  readonly letters: number;
  /** Letters that match and cannot be applied, because the message is no event or is not whole. They stay. */
  readonly unfit: number;
  /** At most 10,000. */
  readonly ids: readonly string[];
  /** The seq of the last of these letters. Null when there is none. */
  readonly last: bigint | null;
}
