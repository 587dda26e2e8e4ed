import type { Envelope } from "../core/event.ts";

export interface Delivery {
  readonly topic: string;
  readonly envelope: Envelope;
  /** Set where the message is no event. The envelope then has an id made from the message's place, and nothing else that is true. */
  readonly unreadable?: Unreadable;
  /** What it counts against the subscription's `bytes`. @default the length of its data */
  readonly bytes?: number;
  /**
   * Set where the broker assigns: one object for all deliveries of one assignment, such as a partition. Once it has ended, the source
   * has released the delivery, and its ack does nothing.
   */
  readonly assignment?: Assignment;
  /** After this, the broker may forget it for this consumer. A lost ack only means one delivery more. */
  ack(): Promise<void>;
  /** It waits, perhaps for long: until its ack it counts among those that are set aside, see Subscription. Twice is harmless. */
  aside(): void;
}

/** A broker's word that these deliveries are this process's alone. */
export interface Assignment {
  /** Aborts when the broker has given them to another process, or may have. */
  readonly ended: AbortSignal;
  /** Asked before anything is begun. It is false after `ended`, and also once the broker has been silent for so long that it may have. */
  ours(): boolean;
}

export interface Unreadable {
  /** In words, without quoting the message. */
  readonly why: string;
  /** The message as it came: data, and headers in the broker's own format where they cannot be had apart. */
  readonly raw: Uint8Array;
}

export interface Subscription {
  readonly consumer: string;
  readonly topics: readonly string[];
  /** How many deliveries may be unacknowledged at once, apart from those that are set aside. */
  readonly prefetch: number;
  /** How many more may be unacknowledged because they are set aside: never more than `prefetch` + `waiting` in all. @default 0 */
  readonly waiting?: number;
  /**
   * How many bytes of deliveries may be unacknowledged at once, apart from those that are set aside; one delivery is let through whatever
   * its size. As many bytes may be set aside, of which one delivery counts as half at most: it never keeps others out. @default no bound
   */
  readonly bytes?: number;
  /**
   * How many receivings of this subscription in a row have ended before one of their deliveries was acknowledged. From the first on, a
   * source that can tell which message comes next reads one at a time; a message that it could not read in three receivings is
   * delivered as unreadable, with what can be had of it. A source that meets such a message without ending may count by itself. @default 0
   */
  readonly stalls?: number;
  /** Is told when the broker removed messages before this consumer was done with them, and how many at most; null: it cannot tell. */
  readonly missed?: (topic: string, messages: number | null) => void;
}

export interface Source extends AsyncDisposable {
  readonly name: string;
  readonly can: {
    /** True where the broker itself gives each aggregate to one consumer at a time; otherwise a seat in the inbox does. */
    readonly assign: boolean;
  };
  connect(signal: AbortSignal): Promise<void>;
  /**
   * When the oldest message was stored that the broker may still deliver to this consumer on this topic, read by it or not; null: there
   * is none. An inbox keeps its marks for longer than that. A message that was never delivered has no mark, and need not count. Where the
   * source cannot tell, it says the year 1970, and nothing is forgotten. Without this function, marks are forgotten by age alone.
   */
  oldest?(topic: string, signal: AbortSignal, consumer: string): Promise<Date | null>;
  /**
   * Pulled: nothing is delivered beyond `prefetch` and `waiting`. One aggregate's deliveries come in the order they were stored.
   * Ends when the signal aborts; what was not acknowledged is delivered again, to whoever asks next.
   */
  receive(subscription: Subscription, signal: AbortSignal): AsyncIterable<Delivery>;
}
