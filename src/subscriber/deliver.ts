import { withDeadline, type Clock } from "../core/clock.ts";
import { asError, isWaybillError, WaybillError, type ErrorCode } from "../core/errors.ts";
import type { Envelope } from "../core/event.ts";
import type { Failpoints } from "../core/failpoints.ts";
import type { Observe, SubscriberStep } from "../core/path-events.ts";
import type { Random } from "../core/random.ts";
import type { RetrySchedule } from "../core/retry.ts";
import type { DeadLetters } from "../contracts/dead-letters.ts";
import type { Inbox } from "../contracts/inbox.ts";
import type { Delivery } from "../contracts/source.ts";
import { backOff } from "./back-off.ts";
import { isFatal } from "./fatal.ts";
import type { Progress, Step } from "./progress.ts";
import { reasonOf } from "./reason.ts";
import type { Session } from "./session.ts";
import type { Turn } from "./turns.ts";
import { inTime } from "./until.ts";

/** What a subscriber delivers with. */
export interface Path<Tx> {
  readonly consumer: string;
  readonly inbox: Inbox<Tx>;
  readonly letters: DeadLetters;
  /** Is there a handler for this type? */
  readonly handles: (type: string) => boolean;
  readonly handle: (topic: string, envelope: Envelope, tx: Tx, signal: AbortSignal) => Promise<void>;
  readonly handlerVersion: number;
  readonly handlerTimeoutMs: number;
  readonly concurrency: number;
  readonly retry: RetrySchedule;
  readonly stopping: AbortSignal;
  readonly progress: Progress;
  /** When interrupted waits end (monotonic), by event id: a broken link must not cut a back-off short. */
  readonly resting: Map<string, number>;
  readonly clock: Clock;
  readonly random: Random;
  readonly failpoints: Failpoints;
  readonly observe: Observe;
}

/** One delivery, in its session, in its aggregate's turn. */
export interface Post {
  readonly delivery: Delivery;
  readonly session: Session;
  readonly turn: Turn;
  /** Its aggregate has to wait: what comes behind it must not keep others from being delivered. */
  readonly hold: () => void;
}

/** Left without an ack, for another session or process. */
const left = Symbol("left");

/** True once the delivery is acknowledged; false when it was left for another session. */
export async function deliver<Tx>(path: Path<Tx>, post: Post): Promise<boolean> {
  const { id, type } = post.delivery.envelope;
  if (!path.handles(type)) return ignore(path, post);
  await rest(path, post, (path.resting.get(id) ?? 0) - path.clock.monotonic());
  while (post.session.ours()) {
    const failure = await once(path, post);
    if (failure === left) return false;
    if (failure === null) return acknowledge(path, post, "after-effect");

    post.hold();
    const attempts = await count(path, post, failure);
    if (attempts === left) return false;
    const waitMs = isFatal(failure) ? null : path.retry.next(attempts);
    if (waitMs === null) return (await park(path, post, failure, attempts)) && acknowledge(path, post);

    path.observe({
      type: "subscriber.failed",
      consumer: path.consumer,
      id,
      eventType: type,
      attempts,
      retryInMs: waitMs,
      error: reasonOf(failure),
    });
    await rest(path, post, waitMs);
  }
  return false;
}

async function ignore<Tx>(path: Path<Tx>, post: Post): Promise<boolean> {
  if (!post.session.ours()) return false;
  const { id, type } = post.delivery.envelope;
  path.observe({ type: "subscriber.ignored", consumer: path.consumer, id, eventType: type });
  return acknowledge(path, post);
}

/** Mark and work commit together. The failure is the event's own; what belongs to the database costs no attempt. */
function once<Tx>(path: Path<Tx>, post: Post): Promise<Error | null | typeof left> {
  const { envelope, topic } = post.delivery;
  const { clock, handlerTimeoutMs, failpoints } = path;
  const { id, type } = envelope;
  let lost = 0;
  return persist(path, post, "once", async (step) => {
    const from = clock.monotonic();
    const work: { began: boolean; failure: Error | null } = { began: false, failure: null };
    // A store may let one transaction in at a time; then all the others' handlers come first.
    step.extend(path.concurrency * handlerTimeoutMs + graceMs);
    try {
      await failpoints.hit("before-handle", [id]);
      const result = await path.inbox.once({ consumer: path.consumer, id }, path.handlerVersion, async (tx) => {
        if (!post.session.ours()) throw new WaybillError("STOPPED", `event ${id} was given up before its handler began`);
        work.began = true;
        work.failure = null;
        step.extend(handlerTimeoutMs + graceMs);
        try {
          const limits = { slowMs, ms: handlerTimeoutMs, onSlow: post.hold };
          await inTime(clock, limits, path.stopping, (signal) => path.handle(topic, envelope, tx, signal));
          await failpoints.hit("before-commit", [id]);
        } catch (error) {
          work.failure = asError(error);
          throw error;
        } finally {
          step.extend(graceMs);
        }
      });
      path.observe({
        type: "subscriber.handled",
        consumer: path.consumer,
        id,
        eventType: type,
        first: result === "done",
        ms: clock.monotonic() - from,
      });
      return null;
    } catch (error) {
      // Known before the handler could begin, and the event's own all the same.
      if (isWaybillError(error, "EFFECT_UNFINISHED")) return error;
      // A handler that ends its own transaction looks like a database that lost it; one that always does is to blame.
      lost = work.began && isWaybillError(error, "TRANSACTION_LOST") ? lost + 1 : 0;
      if (!work.began || (ofDatabase(error) && lost < maxLost)) throw error;
      return work.failure ?? asError(error);
    }
  });
}

const maxLost = 3;
const slowMs = 1_000;

const databaseCodes: readonly ErrorCode[] = [
  "STORE_UNAVAILABLE",
  "STORE_READ_ONLY",
  "STORE_CORRUPT",
  "TRANSACTION_LOST",
  "COMMIT_UNKNOWN",
  "NOT_MIGRATED",
  "SCHEMA_NEWER",
  "STOPPED",
];

function ofDatabase(error: unknown): boolean {
  return isWaybillError(error) && databaseCodes.includes(error.code);
}

function count<Tx>(path: Path<Tx>, post: Post, failure: Error): Promise<number | typeof left> {
  return persist(path, post, "count", () =>
    path.inbox.failed({ consumer: path.consumer, id: post.delivery.envelope.id }, reasonOf(failure)),
  );
}

/** True once the letter is durable. */
async function park<Tx>(path: Path<Tx>, post: Post, failure: Error, attempts: number): Promise<boolean> {
  if (post.session.ended.aborted) return false;
  const { envelope, topic } = post.delivery;
  const letter = { envelope, topic, consumer: path.consumer, error: reasonOf(failure), attempts };
  const parked = await persist(path, post, "park", () =>
    withDeadline(path.clock, parkMs, path.stopping, (signal) => path.letters.park(letter, signal)),
  );
  if (parked === left) return false;
  path.observe({
    type: "subscriber.died",
    consumer: path.consumer,
    id: envelope.id,
    eventType: envelope.type,
    topic,
    attempts,
    error: letter.error,
  });
  return true;
}

async function acknowledge<Tx>(path: Path<Tx>, post: Post, before?: "after-effect"): Promise<boolean> {
  const ids = [post.delivery.envelope.id];
  const acked = await persist(path, post, "ack", async () => {
    if (before !== undefined) await path.failpoints.hit(before, ids);
    await post.delivery.ack();
  });
  if (acked === left) return false;
  await path.failpoints.hit("after-ack", ids);
  return true;
}

async function rest<Tx>({ resting, clock }: Path<Tx>, { delivery, session, turn, hold }: Post, ms: number): Promise<void> {
  if (ms <= 0) return;
  hold();
  const { id } = delivery.envelope;
  const now = clock.monotonic();
  for (const [other, by] of resting) if (by <= now) resting.delete(other);
  resting.set(id, now + ms);
  await turn.aside(() => clock.sleep(ms, session.over));
}

const graceMs = 30_000;
const parkMs = 30_000;

/** Tries until it works. What was begun is tried at least once, also while draining; then it is left. */
async function persist<Tx, T>(
  path: Path<Tx>,
  post: Post,
  name: SubscriberStep,
  work: (step: Step) => Promise<T>,
): Promise<T | typeof left> {
  const { session, turn, delivery } = post;
  const { id } = delivery.envelope;
  for (let tries = 1; ; tries++) {
    const step = path.progress.begin({ name, topic: delivery.topic, id }, parkMs + graceMs);
    try {
      return await work(step);
    } catch (error) {
      if (!session.over.aborted || !isWaybillError(error, "STOPPED")) {
        path.observe({
          type: "subscriber.trouble",
          consumer: path.consumer,
          step: name,
          topic: delivery.topic,
          id,
          error: reasonOf(asError(error)),
        });
      }
    } finally {
      step.end();
    }
    await turn.aside(() => path.clock.sleep(backOff(tries, path.random), session.over));
    if (!session.ours()) return left;
  }
}
