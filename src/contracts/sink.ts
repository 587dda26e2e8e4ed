import type { Envelope } from "../core/event.ts";

export interface Outgoing {
  readonly topic: string;
  /** CloudEvents `source`. */
  readonly source: string;
  readonly envelope: Envelope;
}

export type PublishResult =
  /** The broker acknowledged it, in the strongest way that the broker ordinarily offers. */
  | { readonly status: "stored" }
  /** Certainly not stored. `blame` says whether this event or its topic is the reason. */
  | { readonly status: "refused"; readonly blame: "event" | "destination"; readonly retryable: boolean; readonly error: Error }
  /** The publish timed out or the connection was lost: the broker may or may not have stored it. */
  | { readonly status: "unknown"; readonly error: Error }
  /** Not sent, because an earlier message of its aggregate was not stored, or the publish was aborted or had already taken long. */
  | { readonly status: "skipped" };

export interface Sink extends AsyncDisposable {
  readonly name: string;
  readonly can: {
    readonly maxBytes: number;
    /**
     * How many messages of one aggregate one round trip stores. The deadline of a `publish` covers all its round trips, so the relay
     * passes more of an aggregate only while the sink answers within milliseconds. @default any number
     */
    readonly run?: number;
  };
  connect(signal: AbortSignal): Promise<void>;
  /**
   * Answers one result per message, in the order given. It never rejects, and settles soon after the signal aborts.
   * Messages of one aggregate are stored in the order given. After one that was not stored, no later message of its aggregate is sent.
   */
  publish(batch: readonly Outgoing[], signal: AbortSignal): Promise<readonly PublishResult[]>;
  /** Checks that the topic exists and accepts messages. It reads metadata only, and rejects with the reason when it does not. */
  probe(topic: string, signal: AbortSignal): Promise<void>;
}
