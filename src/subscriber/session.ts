import type { Clock } from "../core/clock.ts";
import type { Observe } from "../core/path-events.ts";
import type { Random } from "../core/random.ts";
import { follow, onAbort, until, untilAborted, within } from "../core/time.ts";
import type { Assignment, Delivery, Source, Subscription } from "../contracts/source.ts";
import { backOff } from "./back-off.ts";
import { watchFullness } from "./fullness.ts";
import type { SubscriberTroubles } from "./trouble.ts";

/** One period of receiving from the source. Its unacknowledged deliveries are delivered again in the next session. */
export interface Session {
  /** Aborts when its deliveries are not ours any more: the seat or the link is lost, or the subscriber was stopped. */
  readonly ended: AbortSignal;
  /** Aborts with `ended`, and when draining begins: nothing new is begun then, and nothing is waited for. */
  readonly over: AbortSignal;
  /** Asked before anything is begun. */
  ours(): boolean;
  /** Asked before a delivery that has begun is parked as a letter. Draining allows that, another owner does not. */
  held(): boolean;
}

export interface Receive {
  readonly source: Source;
  readonly subscription: Subscription;
  readonly draining: AbortSignal;
  readonly stopping: AbortSignal;
  readonly clock: Clock;
  readonly random: Random;
  readonly observe: Observe;
  readonly troubles: SubscriberTroubles;
  /** True once the delivery is done with and acknowledged; false when it was left for another session. */
  readonly take: (delivery: Delivery, session: Session) => Promise<boolean>;
}

const closeMs = 5_000;

/** Receives until draining begins or `lost` aborts, whatever happens to the link. `trusted` is asked before every step. */
export async function receive(options: Receive, lost: AbortSignal, trusted: () => boolean): Promise<void> {
  const { clock, random, draining } = options;
  let failures = 0;
  let stalls = 0;
  while (!lost.aborted && !draining.aborted) {
    const subscription = { ...options.subscription, ...(stalls > 0 && { stalls }) };
    const { received, acked } = await receiveOnce({ ...options, subscription }, lost, trusted);
    failures = received ? 1 : failures + 1;
    stalls = acked ? 0 : stalls + 1;
    await until(lost, clock.sleep(backOff(failures, random), draining));
  }
}

interface Ended {
  /** Something came before it ended. */
  readonly received: boolean;
  /** Something was acknowledged. */
  readonly acked: boolean;
}

async function receiveOnce(options: Receive, lost: AbortSignal, trusted: () => boolean): Promise<Ended> {
  const { source, subscription, draining, stopping, clock, observe, troubles } = options;
  const topics = subscription.topics.join(",");
  const ending = follow(lost);
  const over = follow(draining, ending.signal);
  const session: Session = {
    ...{ ended: ending.signal, over: over.signal },
    ours: () => !over.signal.aborted && trusted(),
    held: () => !ending.signal.aborted && trusted(),
  };
  const sessionOf = assignedSessions(session);

  let received = false;
  let acked = false;
  const take = async (delivery: Delivery): Promise<void> => {
    try {
      // A delivery left behind must not be overtaken by its followers: they come again with it, in a new session.
      if (await options.take(delivery, sessionOf(delivery))) acked = true;
      // All of an assignment that has ended is left, and its new owner gets it.
      else if (!draining.aborted && delivery.assignment?.ended.aborted !== true) ending.abort();
    } catch (error) {
      troubles.met("receive", error, topics);
      ending.abort();
    }
  };

  const untilOver = untilAborted(over.signal);
  const running = new Set<Promise<void>>();
  const fullness = watchFullness(subscription, running, observe);
  let deliveries: AsyncIterator<Delivery> | null = null;
  try {
    deliveries = source.receive(subscription, ending.signal)[Symbol.asyncIterator]();
    while (session.ours()) {
      const next = await untilOver(deliveries.next());
      if (next === null) break;
      if (next.done === true) throw new Error(`${source.name} stopped delivering`);
      received = true;
      troubles.over("receive", topics);
      const { delivery, done } = fullness.watch(next.value);
      const task = take(delivery).finally(() => {
        running.delete(task);
        done();
      });
      running.add(task);
      fullness.look();
    }
    await until(ending.signal, Promise.all(running));
  } catch (error) {
    if (!over.signal.aborted) troubles.met("receive", error, topics);
  } finally {
    ending.abort();
    ending.release();
    over.release();
    await within(clock, closeMs, close(deliveries), stopping).catch(() => undefined);
  }
  return { received, acked };
}

/** The session, as the deliveries of one assignment see it: for them it also ends with the assignment. */
function assignedSessions(session: Session): (delivery: Delivery) => Session {
  const sessions = new WeakMap<Assignment, Session>();
  return ({ assignment }) => {
    if (assignment === undefined) return session;
    const known = sessions.get(assignment);
    if (known !== undefined) return known;
    const ended = follow(session.ended, assignment.ended);
    const over = follow(session.over, assignment.ended);
    const release = (): void => {
      over.abort();
      ended.release();
      over.release();
    };
    // Released when the first of the two ends: an assignment may outlive many sessions, and a session many assignments.
    onAbort(ended.signal, release);
    const own: Session = {
      ...{ ended: ended.signal, over: over.signal },
      ours: () => session.ours() && assignment.ours(),
      held: () => session.held() && assignment.ours(),
    };
    sessions.set(assignment, own);
    return own;
  };
}

async function close(deliveries: AsyncIterator<Delivery> | null): Promise<void> {
  await deliveries?.return?.();
}
