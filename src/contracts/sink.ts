import type { Envelope } from "../core/event.ts";

export interface Outgoing {
  readonly topic: string;
  /** CloudEvents `source`. */
  readonly source: string;
  readonly envelope: Envelope;
}

export type PublishResult =
  /** Acknowledged by the broker, in its strongest ordinary sense. */
  | { readonly status: "stored" }
  /** Certainly not stored. The event is to blame for what it is, or the destination for how it is. */
  | { readonly status: "refused"; readonly blame: "event" | "destination"; readonly retryable: boolean; readonly error: Error }
  /** A time-out or a lost link: neither yes nor no. */
  | { readonly status: "unknown"; readonly error: Error }
  /** Not sent, because an earlier one of its aggregate was not stored. */
  | { readonly status: "skipped" };

export interface Sink extends AsyncDisposable {
  readonly name: string;
  readonly can: {
    readonly maxBytes: number;
    /**
     * How many messages of one aggregate a round trip stores. The relay hands over no more of an aggregate in one `publish`, so that
     * its deadline covers a round trip and not a whole run of them. @default any number
     */
    readonly run?: number;
  };
  connect(signal: AbortSignal): Promise<void>;
  /**
   * One result per message, in the order given; never rejects, and settles soon after the signal aborts.
   * Messages of one aggregate are stored in the order given, and none is sent once an earlier one was not stored.
   */
  publish(batch: readonly Outgoing[], signal: AbortSignal): Promise<readonly PublishResult[]>;
  /** Is the destination there and willing? Looks at metadata only; rejects with the reason when not. */
  probe(topic: string, signal: AbortSignal): Promise<void>;
}
