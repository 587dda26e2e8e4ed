import { types } from "node:util";
import type { ErrorCode } from "./errors.ts";

/** What happens along the path, for logs, metrics, alerts and tests. */
export type PathEvent =
  | { readonly type: "relay.claimed"; readonly relay: string; readonly count: number; readonly narrow: boolean }
  | { readonly type: "relay.published"; readonly relay: string; readonly count: number; readonly ms: number }
  | {
      readonly type: "relay.failed";
      readonly id: string;
      readonly aggregateType: string;
      readonly aggregateId: string;
      readonly eventType: string;
      readonly failures: number;
      readonly retryInMs: number;
      readonly error: string;
    }
  /** An event is DEAD. One for every death, whatever its cause. */
  | {
      readonly type: "relay.died";
      readonly id: string;
      readonly aggregateType: string;
      readonly aggregateId: string;
      readonly eventType: string;
      readonly error: string;
      readonly followers: "blocked" | "released";
    }
  | {
      readonly type: "relay.trouble";
      readonly relay: string;
      readonly step: "claim" | "publish" | "settle" | "renew" | "probe" | "housekeeping";
      readonly error: string;
      readonly code: ErrorCode | null;
    }
  | { readonly type: "destination.opened"; readonly topic: string; readonly error: string; readonly probeInMs: number }
  | { readonly type: "destination.closed"; readonly topic: string }
  /** `turn`: as a matter of course, with coordination "competing". */
  | { readonly type: "lanes.won"; readonly relay: string; readonly lanes: readonly number[]; readonly turn: boolean }
  | { readonly type: "lanes.given"; readonly relay: string; readonly lanes: readonly number[]; readonly turn: boolean }
  | { readonly type: "lanes.lost"; readonly relay: string; readonly lanes: readonly number[] }
  /** One for every run of housekeeping; not complete when part of it failed or the relay ended. */
  | {
      readonly type: "housekeeping.done";
      readonly relay: string;
      /** Events deleted, those of dropped partitions among them. */
      readonly purged: number;
      /** Partitions. */
      readonly created: readonly string[];
      readonly dropped: readonly string[];
      /** Unpublished events that were moved out of dropped partitions. */
      readonly moved: number;
      readonly complete: boolean;
      readonly ms: number;
    }
  | ({ readonly type: "watch.warning"; readonly relay: string } & WatchWarning)
  | {
      readonly type: "subscriber.handled";
      readonly consumer: string;
      readonly id: string;
      readonly eventType: string;
      readonly first: boolean;
      readonly ms: number;
    }
  | {
      readonly type: "subscriber.failed";
      readonly consumer: string;
      readonly id: string;
      readonly eventType: string;
      readonly attempts: number;
      readonly retryInMs: number;
      readonly error: string;
    }
  /** A subscriber gave up on an event and its letter is durable. */
  | {
      readonly type: "subscriber.died";
      readonly consumer: string;
      readonly id: string;
      readonly eventType: string;
      readonly topic: string;
      readonly attempts: number;
      readonly error: string;
    }
  | { readonly type: "subscriber.ignored"; readonly consumer: string; readonly id: string; readonly eventType: string }
  /** So many deliveries wait behind failing events of their aggregates that no more are received; or, later, there is room again. */
  | {
      readonly type: "subscriber.full";
      readonly consumer: string;
      readonly topic: string;
      readonly unacknowledged: number;
      readonly full: boolean;
    }
  /** The broker removed messages before this consumer was done with them, at most so many; null: it cannot tell how many. */
  | { readonly type: "subscriber.missed"; readonly consumer: string; readonly topic: string; readonly messages: number | null }
  /** A round of forgetting: marks and counts of attempts older than `before` are gone from the inbox. */
  | {
      readonly type: "subscriber.forgot";
      readonly consumer: string;
      readonly rows: number;
      /** ISO 8601. */
      readonly before: string;
      /** The topic whose oldest message made it earlier than the retention asks for; null: none did. */
      readonly keptFor: string | null;
    }
  | { readonly type: "subscriber.seat"; readonly consumer: string; readonly topic: string; readonly held: boolean }
  | {
      readonly type: "subscriber.trouble";
      readonly consumer: string;
      readonly step: SubscriberStep;
      readonly topic: string | null;
      readonly id: string | null;
      readonly error: string;
    };

/** Something that makes the tables grow, or the relay slow, and who is to blame for it. */
export interface WatchWarning {
  readonly what: "writer" | "horizon" | "dead-rows" | "bytes" | "partitions" | "archive";
  /** Such as "session 4711". */
  readonly holder: string | null;
  readonly text: string;
}

export type SubscriberStep = "receive" | "once" | "count" | "park" | "ack" | "seat" | "forget";

/** Never waits and never throws: a slow or broken observer must not slow or fail a delivery. */
export type Observe = (event: PathEvent) => void;

export function safely(observe: Observe | undefined): Observe {
  if (observe === undefined) return () => undefined;
  return (event) => {
    // An observer's failure is its own, an asynchronous one's too; the path goes on.
    try {
      const returned: unknown = observe(event);
      if (types.isPromise(returned)) returned.catch(() => undefined);
    } catch {
      return;
    }
  };
}
