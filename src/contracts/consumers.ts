/** The consumers whose inboxes are in this database, as an operator and a metrics page see them. */
export interface Consumers {
  /** The consumers that have read a topic, have letters, or failed events that are retried. With a name: only that consumer. */
  look(consumer?: string): Promise<readonly ConsumerState[]>;
}

/** A running consumer of this process, as its broker and the place of its letters report it. */
export interface Watched {
  readonly consumer: string;
  /** Rejects within ten seconds when the subscriber does not run or the broker does not answer. It only reads. */
  look(): Promise<readonly ConsumerTopic[]>;
}

export interface ConsumerTopic {
  readonly topic: string;
  /** Messages that the consumer is not done with. Null where it has no place in the topic yet, or the broker cannot tell. */
  readonly lag: number | null;
  /** Its dead-letter topic, and in `error` why that topic takes no letters. Null where letters go to the inbox. */
  readonly deadTopic: { readonly error: string | null } | null;
}

export interface ConsumerState {
  readonly consumer: string;
  readonly reads: readonly ConsumerRead[];
  /** All of its letters, by topic. */
  readonly letters: readonly LetterCount[];
  /** Events whose handler has failed and that are neither applied nor parked yet. Null when there is none. */
  readonly retrying: Retrying | null;
  /** How many of the events that it applied still have a mark, counted up to 100,000. Null unless the consumer was named. */
  readonly handled: number | null;
}

/** A topic that a subscriber of the consumer reads or has read. It stays when the last subscriber ends, however that happens. */
export interface ConsumerRead {
  readonly topic: string;
  /** Whether a subscriber process runs, by the database's clock. One that was killed counts until its seat expires. */
  readonly running: boolean;
  /** When one was seen last. */
  readonly seenAt: Date;
}

export interface LetterCount {
  readonly topic: string;
  readonly letters: number;
  /** How many of them were redriven, and wait for their consumer. */
  readonly redriven: number;
  /** When the oldest was parked. */
  readonly oldest: Date;
}

export interface Retrying {
  readonly events: number;
  /** The most failed attempts that one of them has. */
  readonly attempts: number;
  /** When the latest of these failures happened. */
  readonly failedAt: Date;
}
