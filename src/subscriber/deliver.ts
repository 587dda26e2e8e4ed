import { causesOf, sqlStateOf } from "../core/causes.ts";
import { asError, isWaybillError, WaybillError, type ErrorCode } from "../core/errors.ts";
import { markable, maxMarkBytes, type Letter } from "../core/letter.ts";
import { lineOf, reasonOf } from "../core/reason.ts";
import { withDeadline } from "../core/time.ts";
import { Conflict, SessionEnded } from "../core/blameless.ts";
import type { Delivery } from "../contracts/source.ts";
import { fatal, isFatal } from "./fatal.ts";
import { shortened } from "./letters.ts";
import { Alone, graceMs, left, parkMs, persist, type Path, type Taken } from "./persist.ts";

const noHandler = (type: string): Error => fatal(`there is no handler for ${type}`);

/** True once the delivery is acknowledged; false when it was left for another session. */
export async function deliver<Tx>(path: Path<Tx>, post: Taken): Promise<boolean> {
  const { id, type } = post.delivery.envelope;
  const unfit = unfitness(path, post.delivery);
  if (unfit !== null) return setAside(path, post, unfit, 1);
  if (!path.handles(type)) return post.delivery.letter === undefined ? ignore(path, post) : setAside(path, post, noHandler(type), 1);
  await rest(path, post, (path.resting.get(id) ?? 0) - path.clock.monotonic());
  while (post.session.ours()) {
    const failure = await once(path, post);
    if (failure === left) return false;
    if (failure === null) return acknowledge(path, post, "after-effect");

    post.hold();
    const attempts = await count(path, post, failure);
    if (attempts === left) return false;
    const waitMs = isFatal(failure) ? null : path.retry.next(attempts);
    if (waitMs === null) return setAside(path, post, failure, attempts);

    path.observe({
      type: "subscriber.failed",
      consumer: path.consumer,
      id,
      eventType: type,
      attempts,
      retryInMs: waitMs,
      error: lineOf(failure),
    });
    await rest(path, post, waitMs);
  }
  return false;
}

/** Why no handler may see the message: it is no event, or its id does not fit a mark, so the inbox could not record that it was applied. */
function unfitness<Tx>(path: Path<Tx>, { unreadable, envelope }: Delivery): WaybillError | null {
  if (unreadable !== undefined) return new WaybillError("MESSAGE_UNREADABLE", unreadable.why);
  if (markable(envelope.id) || !path.handles(envelope.type)) return null;
  return new WaybillError("MESSAGE_UNREADABLE", `its id cannot be marked: it has to be 1 to ${maxMarkBytes} bytes of text without NUL`);
}

/** Parks the letter, and only then acknowledges. */
export async function setAside<Tx>(path: Path<Tx>, post: Taken, failure: Error, attempts: number): Promise<boolean> {
  post.hold();
  return (await park(path, post, failure, attempts)) && acknowledge(path, post);
}

async function ignore<Tx>(path: Path<Tx>, post: Taken): Promise<boolean> {
  if (!post.session.ours()) return false;
  const { id, type } = post.delivery.envelope;
  path.observe({ type: "subscriber.ignored", consumer: path.consumer, id, eventType: type });
  return acknowledge(path, post);
}

/**
 * Commits the mark and the handler's work together. The returned failure is the event's own. A database failure costs no attempt, unless
 * it comes again and again while the database works for other events.
 */
async function once<Tx>(path: Path<Tx>, post: Taken): Promise<Error | null | typeof left> {
  const { envelope, letter } = post.delivery;
  const { clock, handlerTimeoutMs, failpoints } = path;
  const { id, type } = envelope;
  let lost = 0;
  const done = await persist(
    path,
    post,
    "once",
    async (step) => {
      const from = clock.monotonic();
      const work: { began: boolean; failure: Error | null } = { began: false, failure: null };
      // A store may run one transaction at a time. This one may then wait for the handlers of all the others.
      step.extend(path.concurrency * handlerTimeoutMs + graceMs);
      try {
        await failpoints.hit("before-handle", [id]);
        const result = await path.inbox.once(
          { consumer: path.consumer, id },
          path.handlerVersion,
          async (tx) => {
            if (!post.session.ours()) throw new WaybillError("STOPPED", `event ${id} was given up before its handler began`);
            work.began = true;
            work.failure = null;
            step.extend(handlerTimeoutMs + graceMs);
            try {
              const limits = { slowMs, ms: handlerTimeoutMs, onSlow: post.hold };
              await path.inTime(limits, (signal) => path.handle([post.delivery], tx, signal));
              await failpoints.hit("before-commit", [id]);
            } catch (error) {
              throw (work.failure = asError(error)); // the store inspects this error, so it must be readable
            } finally {
              step.extend(graceMs);
            }
          },
          letter,
        );
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
        // Found before the handler could begin, but still the event's own failure.
        if (isWaybillError(error, "EFFECT_UNFINISHED")) return error;
        // A handler that ends its own session looks like a database that did; one that always does is to blame. So is one that always conflicts.
        lost = error instanceof SessionEnded || error instanceof Conflict ? lost + 1 : 0;
        if (work.began ? ofDatabase(error) && lost < maxLost : !ofMark(error)) throw error;
        return work.failure ?? asError(error);
      }
    },
    true,
  );
  return done instanceof Alone ? done.failure : done;
}

/** Before the handler began, only the mark can have failed. SQLSTATE class 22 (data exception) says that the event itself caused it. */
function ofMark(error: unknown): boolean {
  return causesOf(error).some((cause) => sqlStateOf(cause)?.startsWith("22") === true);
}

const maxLost = 3;
export const slowMs = 1_000;

const databaseCodes: readonly ErrorCode[] = [
  "STORE_UNAVAILABLE",
  "STORE_READ_ONLY",
  "STORE_CORRUPT",
  "COMMIT_UNKNOWN",
  "NOT_MIGRATED",
  "SCHEMA_NEWER",
  "SCHEMA_UNRELEASED",
  "STOPPED",
];

function ofDatabase(error: unknown): boolean {
  return isWaybillError(error) && databaseCodes.includes(error.code);
}

/** How many attempts have failed. If the inbox cannot count them for this event alone, all attempts count as used up. */
async function count<Tx>(path: Path<Tx>, post: Taken, failure: Error): Promise<number | typeof left> {
  // The new owner counts its own failures. With this one added, it would park the event too soon.
  if (post.delivery.assignment?.ours() === false) return left;
  const key = { consumer: path.consumer, id: post.delivery.envelope.id };
  const counted = await persist(path, post, "count", () => path.inbox.failed(key, lineOf(failure)), true);
  return counted instanceof Alone ? path.retry.attempts : counted;
}

/** True once the letter is durable. */
async function park<Tx>(path: Path<Tx>, post: Taken, failure: Error, attempts: number): Promise<boolean> {
  if (!post.session.held()) return false;
  const { envelope, topic, unreadable, letter: number } = post.delivery;
  const { consumer, handlerVersion } = path;
  const raw = unreadable && { raw: unreadable.raw };
  const reason = reasonOf(failure, [envelope.id, envelope.aggregateId]);
  const letter: Letter = {
    envelope,
    topic,
    consumer,
    ...reason,
    attempts,
    handlerVersion,
    ...raw,
    ...(number !== undefined && { again: number }),
  };
  if (!(await kept(path, post, letter))) return false;
  path.observe({
    type: "subscriber.died",
    consumer: path.consumer,
    id: envelope.id,
    eventType: envelope.type,
    topic,
    attempts,
    error: lineOf(failure),
  });
  return true;
}

/** True once `letters` or the inbox has stored the letter. */
async function kept<Tx>(path: Path<Tx>, post: Taken, letter: Letter): Promise<boolean> {
  const { letters, inbox, clock, stopping } = path;
  // Work that ignores the signal is not waited for: an overdue step would cost the seat, and stop the topic.
  const inParkTime = (work: (signal: AbortSignal) => Promise<void>): Promise<void> =>
    withDeadline(clock, parkMs, stopping, work, () => {
      if (stopping.aborted) throw new WaybillError("STOPPED", "the subscriber was stopped while a letter was parked");
      throw new WaybillError("STORE_UNAVAILABLE", `the letter was not kept within ${parkMs} ms`);
    });
  // A redriven letter goes back to the inbox, where it already is.
  if (letters !== null && letter.again === undefined) {
    const parked = await persist(path, post, "park", async () => {
      try {
        await inParkTime((signal) => letters.park(letter, signal));
        return true;
      } catch (error) {
        if (!isFatal(asError(error))) throw error;
        return false;
      }
    });
    if (parked === left) return false;
    if (parked === true) return true;
  }
  for (let fitting = letter; ; fitting = (fitting.again === undefined ? shortened(fitting) : null) ?? fitting) {
    const park = async (): Promise<boolean> => {
      try {
        await inParkTime(() => inbox.park(fitting));
        return true;
      } catch (error) {
        if (isWaybillError(error, "PAYLOAD_TOO_LARGE") && fitting.again === undefined && shortened(fitting) !== null) return false;
        throw error;
      }
    };
    const parked = await persist(path, post, "park", park, true);
    if (parked === left) return false;
    if (parked === true) return true;
  }
}

export async function acknowledge<Tx>(path: Path<Tx>, post: Taken, before?: "after-effect"): Promise<boolean> {
  if (post.delivery.assignment?.ended.aborted === true) return false;
  const ids = [post.delivery.envelope.id];
  const acked = await persist(path, post, "ack", async () => {
    if (before !== undefined) await path.failpoints.hit(before, ids);
    await post.delivery.ack();
  });
  if (acked === left) return false;
  await path.failpoints.hit("after-ack", ids);
  return true;
}

async function rest<Tx>({ resting, clock }: Path<Tx>, { delivery, session, turn, hold }: Taken, ms: number): Promise<void> {
  if (ms <= 0) return;
  hold();
  const { id } = delivery.envelope;
  const now = clock.monotonic();
  for (const [other, by] of resting) if (by <= now) resting.delete(other);
  resting.set(id, now + ms);
  await turn.aside(() => clock.sleep(ms, session.over));
}
