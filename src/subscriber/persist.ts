import { MarkHeld } from "../core/blameless.ts";
import type { Clock } from "../core/clock.ts";
import { asError, isWaybillError } from "../core/errors.ts";
import type { Failpoints } from "../core/failpoints.ts";
import type { Observe, SubscriberStep } from "../core/path-events.ts";
import type { Progress, Step } from "../core/progress.ts";
import type { Random } from "../core/random.ts";
import type { RetrySchedule } from "../core/retry.ts";
import type { DeadLetters } from "../contracts/dead-letters.ts";
import type { Inbox } from "../contracts/inbox.ts";
import type { Delivery } from "../contracts/source.ts";
import { backOff } from "./back-off.ts";
import type { Gate } from "./gate.ts";
import type { InTime } from "./in-time.ts";
import type { Session } from "./session.ts";
import type { SubscriberTroubles } from "./trouble.ts";
import type { Turn } from "./turns.ts";

/** A step that is waited for, and may be overdue. */
export interface UnderWay {
  readonly name: SubscriberStep;
  readonly topic: string;
  readonly id: string;
}

/** What a subscriber delivers with. */
export interface Path<Tx> {
  readonly consumer: string;
  readonly inbox: Inbox<Tx>;
  /** Null where the inbox keeps the letters. */
  readonly letters: DeadLetters | null;
  /** Is there a handler for this type? */
  readonly handles: (type: string) => boolean;
  /** Which of the deliveries each handler call gets, in the order of the calls. */
  readonly calls: (deliveries: readonly Delivery[]) => readonly (readonly Delivery[])[];
  /** Runs one of these calls. */
  readonly handle: (deliveries: readonly Delivery[], tx: Tx, signal: AbortSignal) => Promise<void>;
  readonly handlerVersion: number;
  readonly handlerTimeoutMs: number;
  /** How many transactions run at once. */
  readonly concurrency: number;
  /** How many events share one transaction at most. */
  readonly batch: number;
  readonly gate: Gate;
  readonly retry: RetrySchedule;
  readonly stopping: AbortSignal;
  readonly inTime: InTime;
  readonly progress: Progress<UnderWay>;
  /** When interrupted waits end (monotonic), by event id: a broken link must not cut a back-off short. */
  readonly resting: Map<string, number>;
  /** How many steps of the inbox have succeeded. A step that keeps failing for one event while this rises is that event's own failure. */
  readonly inboxHealth: { successes: number };
  readonly clock: Clock;
  readonly random: Random;
  readonly failpoints: Failpoints;
  readonly observe: Observe;
  readonly troubles: SubscriberTroubles;
}

/** One delivery, in its session, in its aggregate's turn. */
export interface Taken {
  readonly delivery: Delivery;
  readonly session: Session;
  readonly turn: Turn;
  /** Holds its aggregate: the deliveries behind this one must not keep other aggregates from being delivered. */
  readonly hold: () => void;
}

/** Left without an ack, for another session or process. */
export const left = Symbol("left");

export const graceMs = 30_000;
export const parkMs = 30_000;

/** A step failed again and again for this event, while the inbox worked for others. */
export class Alone {
  readonly failure: Error;
  constructor(failure: Error) {
    this.failure = failure;
  }
}

const maxAlone = 5;

/**
 * Retries the work until it succeeds, or until it is shown to fail for this event alone. The work runs at least once, also while draining.
 * If it fails and the session is not ours any more, the delivery is left.
 */
export async function persist<Tx, T>(
  path: Path<Tx>,
  post: Taken,
  name: SubscriberStep,
  work: (step: Step) => Promise<T>,
  ofInbox = false,
): Promise<T | Alone | typeof left> {
  const { session, turn, delivery } = post;
  const { inboxHealth } = path;
  const { id } = delivery.envelope;
  let alone = 0;
  for (let tries = 1, before = inboxHealth.successes; ; tries++) {
    const step = path.progress.begin({ name, topic: delivery.topic, id }, parkMs + graceMs);
    try {
      const done = await work(step);
      if (ofInbox) inboxHealth.successes += 1;
      if (tries > 1) path.troubles.over(name, delivery.topic);
      return done;
    } catch (error) {
      if (!session.over.aborted || !isWaybillError(error, "STOPPED")) path.troubles.met(name, error, delivery.topic, id);
      const foreign = error instanceof MarkHeld; // parked for it, the event could still be applied by the transaction that holds its mark
      if (ofInbox && !foreign && inboxHealth.successes > before && ++alone === maxAlone) return new Alone(asError(error));
      before = inboxHealth.successes;
    } finally {
      step.end();
    }
    if (tries > 1) post.hold();
    await turn.aside(() => path.clock.sleep(backOff(tries, path.random), session.over));
    if (!session.ours()) return left;
  }
}
