import { types } from "node:util";
import type { Ages } from "./ages.ts";
import type { Clock } from "./clock.ts";
import { asError, isWaybillError, type ErrorCode } from "./errors.ts";

/** A notice of something that happened on the path, for logs, metrics, alerts and tests. */
export type PathEvent =
  | ({ readonly type: "relay.claimed"; readonly narrow: boolean } & OfWindow)
  /** `ages`: from `created_at` to this moment, by the database's clock, for observers that ask for them: `withAges`. */
  | ({ readonly type: "relay.published"; readonly ms: number; readonly ages?: Ages } & OfWindow)
  | ({ readonly type: "relay.failed"; readonly failures: number; readonly retryInMs: number; readonly error: string } & OfEvent)
  /** An event became DEAD. There is one for every such event, whatever the cause. */
  | ({ readonly type: "relay.died"; readonly error: string; readonly followers: "blocked" | "released" } & OfEvent)
  | {
      readonly type: "relay.trouble";
      readonly relay: string;
      readonly step: "claim" | "publish" | "settle" | "renew" | "probe" | "housekeeping";
      readonly error: string;
      readonly code: ErrorCode | null;
    }
  /** How the relay finds events from now on: it reads the database's log, or polls. `why`: what keeps it from reading the log. */
  | { readonly type: "relay.mode"; readonly relay: string; readonly mode: "poll" | "tail"; readonly why: string }
  /** A step that went wrong works again. `ms` have passed since it first went wrong. */
  | { readonly type: "relay.recovered"; readonly relay: string; readonly step: "claim" | "settle" | "renew"; readonly ms: number }
  | { readonly type: "destination.opened"; readonly topic: string; readonly error: string; readonly probeInMs: number }
  | { readonly type: "destination.closed"; readonly topic: string }
  /** `turn` is true for the regular exchange of lanes with coordination "competing". */
  | { readonly type: "lanes.won"; readonly relay: string; readonly lanes: readonly number[]; readonly turn: boolean }
  | { readonly type: "lanes.given"; readonly relay: string; readonly lanes: readonly number[]; readonly turn: boolean }
  | { readonly type: "lanes.lost"; readonly relay: string; readonly lanes: readonly number[] }
  /** One for every run of housekeeping. It is not complete when part of it failed, or the relay ended meanwhile. */
  | {
      readonly type: "housekeeping.done";
      readonly relay: string;
      /** Deleted events, including those of dropped partitions. */
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
  | { readonly type: "subscriber.started"; readonly consumer: string; readonly topics: readonly string[] }
  | ({ readonly type: "subscriber.handled"; readonly first: boolean; readonly ms: number } & OfDelivery)
  | ({ readonly type: "subscriber.failed"; readonly attempts: number; readonly retryInMs: number; readonly error: string } & OfDelivery)
  /** A subscriber gave up on an event, and its letter is durable. */
  | ({ readonly type: "subscriber.died"; readonly topic: string; readonly attempts: number; readonly error: string } & OfDelivery)
  | ({ readonly type: "subscriber.ignored" } & OfDelivery)
  /** The subscriber receives no more, because too many deliveries wait behind failing events (`full`), or it receives again. */
  | {
      readonly type: "subscriber.full";
      readonly consumer: string;
      readonly topic: string;
      readonly unacknowledged: number;
      readonly full: boolean;
    }
  /** The broker removed messages before this consumer was done with them. `messages` is the most it can have been; null: unknown. */
  | { readonly type: "subscriber.missed"; readonly consumer: string; readonly topic: string; readonly messages: number | null }
  /** The subscriber deleted marks and counts of attempts that are older than `before` from the inbox. */
  | {
      readonly type: "subscriber.forgot";
      readonly consumer: string;
      readonly rows: number;
      /** ISO 8601. */
      readonly before: string;
      /** The topic whose oldest message made `before` earlier than the retention asks for. Null when no topic did. */
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
    }
  /** A step that went wrong works again. `ms` have passed since it first went wrong. */
  | {
      readonly type: "subscriber.recovered";
      readonly consumer: string;
      readonly step: SubscriberStep;
      readonly topic: string | null;
      readonly ms: number;
    };

/** The events that a relay claimed or published together. */
export interface OfWindow {
  readonly relay: string;
  readonly count: number;
  /** The ids of the events in their order, for observers that ask for them: `withIds`. */
  readonly ids?: readonly string[];
}

/** The event in the outbox that a path event is about. */
export interface OfEvent {
  readonly id: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly eventType: string;
}

/** The event that a subscriber received, and for which consumer. */
export interface OfDelivery {
  readonly consumer: string;
  readonly id: string;
  readonly eventType: string;
}

/** Something that makes the tables grow or the relay slow, and what causes it. */
/** What the watch warns of. */
export const watched = ["writer", "horizon", "dead-rows", "bytes", "partitions", "archive", "log"] as const;

export interface WatchWarning {
  readonly what: (typeof watched)[number];
  /** Such as "session 4711". */
  readonly holder: string | null;
  readonly text: string;
}

export type SubscriberStep = "receive" | "once" | "count" | "park" | "ack" | "seat" | "forget" | "redrive";

/** The path does not wait for it, and ignores what it throws: a slow or broken observer neither slows nor fails a delivery. */
export interface Observe {
  (event: PathEvent): void;
  /** Asks for `ids` in relay.claimed and relay.published. A relay whose observer does not ask builds no list of them. */
  readonly ids?: boolean;
  /** Asks for `ages` in relay.published. */
  readonly ages?: boolean;
}

/** The same observer, which also gets the ids of the events that a relay claims and publishes. */
export const withIds = (observe: Observe): Observe => asking((event) => observe(event), [observe, { ids: true }]);

/** The same observer, which also gets the ages of the events that a relay publishes. */
export const withAges = (observe: Observe): Observe => asking((event) => observe(event), [observe, { ages: true }]);

type Asking = Pick<Observe, "ids" | "ages">;

/** `tell` as an observer that asks for everything that one of `others` asks for. */
export const asking = (tell: (event: PathEvent) => void, others: readonly Asking[]): Observe =>
  Object.assign(tell, others.some(({ ids }) => ids === true) && { ids: true }, others.some(({ ages }) => ages === true) && { ages: true });

/** The field `ids` for an observer that asks for it; nothing for others. */
export const idsFor = <T>({ ids }: Observe, of: readonly T[], idOf: (one: T) => string): { readonly ids?: readonly string[] } =>
  ids === true ? { ids: of.map(idOf) } : {};

type RelayStep = Extract<PathEvent, { readonly type: "relay.trouble" }>["step"];

type RecoveringStep = Extract<PathEvent, { readonly type: "relay.recovered" }>["step"];

/** Reports what a relay could not do, and reports once when it works again. */
export interface RelayTroubles {
  /** Answers for how many milliseconds the step has not worked. */
  met(step: RelayStep, cause: unknown): number;
  /** The step has worked. */
  over(step: RecoveringStep): void;
}

export function relayTroubles(observe: Observe, relay: string, clock: Clock): RelayTroubles {
  const since = new Map<RelayStep, number>();
  return {
    met(step, cause) {
      const now = clock.monotonic();
      const from = since.get(step) ?? now;
      since.set(step, from);
      const error = asError(cause);
      observe({ type: "relay.trouble", relay, step, error: error.message, code: isWaybillError(error) ? error.code : null });
      return now - from;
    },
    over(step) {
      const from = since.get(step);
      if (from === undefined) return;
      since.delete(step);
      observe({ type: "relay.recovered", relay, step, ms: clock.monotonic() - from });
    },
  };
}

export function safely(observe: Observe): Observe {
  const safe: Observe = (event) => {
    // A failure of the observer, also an asynchronous one, does not affect the path.
    try {
      const returned: unknown = observe(event);
      if (types.isPromise(returned)) returned.catch(() => undefined);
    } catch {
      return;
    }
  };
  return asking(safe, [observe]);
}
