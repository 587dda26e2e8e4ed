import type { Envelope } from "../core/event.ts";

export interface Delivery {
  readonly topic: string;
  readonly envelope: Envelope;
  /** Set when the message is not an event. The envelope then has an id made from the message's place, and its other fields mean nothing. */
  readonly unreadable?: Unreadable;
  /** How many of the subscription's `bytes` it takes. @default the length of its data */
  readonly bytes?: number;
  /**
   * Set where the broker assigns aggregates: one object for all deliveries of one assignment, such as a partition. Once the assignment
   * has ended, the source has released the delivery, and its ack does nothing.
   */
  readonly assignment?: Assignment;
  /** Set for a delivery that does not come from the broker: the number of the redriven letter that holds its message. */
  readonly letter?: bigint;
  /** Tells the broker that this consumer is done with the message. A lost ack only causes one more delivery. */
  ack(): Promise<void>;
  /** Sets it aside, because it may wait for long. Until its ack it counts against the Subscription's `waiting`. Twice is harmless. */
  aside(): void;
}

/** The broker's promise that only this process has these deliveries. */
export interface Assignment {
  /** Aborts when the broker has given them to another process, or may have done so. */
  readonly ended: AbortSignal;
  /** Asked before work begins. False after `ended`, and once the broker has been silent for so long that it may have reassigned them. */
  ours(): boolean;
}

export interface Unreadable {
  /** The reason, in words that do not quote the message. */
  readonly why: string;
  /** The message as it came: its data, and its headers in the broker's own format where the two cannot be separated. */
  readonly raw: Uint8Array;
}

export interface Subscription {
  readonly consumer: string;
  readonly topics: readonly string[];
  /** How many deliveries may be unacknowledged at once, not counting those that are set aside. */
  readonly prefetch: number;
  /** How many more may be unacknowledged because they are set aside. The total never exceeds `prefetch` + `waiting`. @default 0 */
  readonly waiting?: number;
  /**
   * How many bytes of deliveries may be unacknowledged at once, not counting those that are set aside. One delivery passes whatever its
   * size. As many bytes may be set aside. One delivery counts as half of them at most, so it never keeps others out. @default no bound
   */
  readonly bytes?: number;
  /**
   * How many calls of `receive` in a row ended before one of their deliveries was acknowledged. From the first such call on, a source
   * that knows which message comes next reads one message at a time. A message that it could not read in three calls is delivered as
   * unreadable, with as much of it as the source could read. A source that survives such a message may count by itself. @default 0
   */
  readonly stalls?: number;
  /** Called when the broker removed messages before this consumer was done with them. `messages` is an upper bound; null: unknown. */
  readonly missed?: (topic: string, messages: number | null) => void;
}

export interface Source extends AsyncDisposable {
  readonly name: string;
  readonly can: {
    /** True where the broker itself gives each aggregate to one process at a time. Otherwise a seat in the inbox does that. */
    readonly assign: boolean;
  };
  connect(signal: AbortSignal): Promise<void>;
  /**
   * When the oldest message was stored that the broker may still deliver to this consumer on this topic, read or unread. Null means that
   * there is none. An inbox keeps its marks for longer than that. A message that was never delivered has no mark, and need not count. A
   * source that cannot tell answers the year 1970, and then no mark is forgotten. Without this function, marks are forgotten by age alone.
   */
  oldest?(topic: string, signal: AbortSignal, consumer: string): Promise<Date | null>;
  /**
   * How many messages of this topic the consumer is not done with, unacknowledged ones included. Null means that the consumer has no place
   * in the topic yet, or that the broker cannot tell. It only reads: it creates nothing, and no receiver of the consumer notices it. The
   * number may trail the last acks for a moment. A broker that cannot see what a receiver holds leaves that out.
   */
  lag?(topic: string, signal: AbortSignal, consumer: string): Promise<number | null>;
  /**
   * The subscriber pulls: the source delivers nothing beyond `prefetch` and `waiting`. An aggregate's deliveries come in the order in
   * which they were stored. The iteration ends when the signal aborts. Unacknowledged messages are delivered again to the next receiver.
   */
  receive(subscription: Subscription, signal: AbortSignal): AsyncIterable<Delivery>;
}
