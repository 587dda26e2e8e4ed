import { asError, isWaybillError } from "../core/errors.ts";
import { aggregateKey } from "../core/event.ts";
import type { ServiceRun } from "../core/service.ts";
import { until, within } from "../core/time.ts";
import { createProgress } from "../core/progress.ts";
import type { Letters } from "../contracts/letters.ts";
import type { Delivery, Source } from "../contracts/source.ts";
import { deliver, setAside } from "./deliver.ts";
import { forgetOld } from "./forgetting.ts";
import { createGate } from "./gate.ts";
import { createHolds } from "./holds.ts";
import { createInTime } from "./in-time.ts";
import type { Path, UnderWay } from "./persist.ts";
import { keepPresence } from "./presence.ts";
import { redriveInTurn, redriveLetters } from "./redrive.ts";
import { createSeat } from "./seat.ts";
import { receive, type Receive, type Session } from "./session.ts";
import { deliverTogether, sharedName, type Member } from "./together.ts";
import { createTurns, type Turn } from "./turns.ts";

export interface Subscribe<Tx> {
  readonly parts: Omit<Path<Tx>, "stopping" | "gate" | "inTime" | "progress" | "resting" | "inboxHealth">;
  readonly source: Source;
  /** Null where the inbox has no letters that could be redriven. */
  readonly letters: Letters | null;
  readonly topics: readonly string[];
  readonly prefetch: number;
  readonly prefetchBytes: number;
  readonly maxWaiting: number;
  /** Null: the inbox forgets nothing. */
  readonly retentionMs: number | null;
  readonly seatMs: number;
  readonly owner: string;
}

/** How long `stop` waits for transactions to be rolled back. */
const rollbackMs = 1_000;
const maxDefects = 3;

/** A subscriber's whole life, from connecting to the last ack. */
export async function subscribe<Tx>(settings: Subscribe<Tx>, run: ServiceRun): Promise<void> {
  const { parts, source, topics, prefetch, prefetchBytes, maxWaiting, retentionMs, seatMs, owner, letters } = settings;
  const { draining, stopping } = run;
  const { consumer, inbox, clock, random, observe, troubles } = parts;
  const progress = createProgress<UnderWay>(clock);
  const path: Path<Tx> = {
    ...parts,
    stopping,
    gate: createGate(clock, parts.concurrency),
    inTime: createInTime(clock, stopping),
    progress,
    resting: new Map(),
    inboxHealth: { successes: 0 },
  };
  const together = {
    most: parts.batch,
    nameOf: (member: Member) => sharedName(path, member),
    run: (members: readonly Member[], turn: Turn) => deliverTogether(path, members, turn),
  };
  const turns = createTurns<Member>(parts.concurrency, parts.batch > 1 ? together : undefined);
  const holds = createHolds();
  const defects = new Map<string, number>();
  const take = async (delivery: Delivery, session: Session): Promise<boolean> => {
    const key = `${delivery.topic}\0${aggregateKey(delivery.envelope)}`;
    const { hold, leave } = holds.enter(key, delivery);
    const { id } = delivery.envelope;
    let acked = false;
    const alone = async (turn: Turn): Promise<void> => {
      const post = { delivery, session, turn, hold };
      try {
        acked = await deliver(path, post);
        defects.delete(id);
      } catch (error) {
        // A bug in Waybill, which would end every session at this message.
        const times = (defects.get(id) ?? 0) + 1;
        defects.set(id, times);
        if (times < maxDefects) throw error;
        acked = await setAside(path, post, asError(error), times);
      }
    };
    try {
      await turns.take(key, alone, { delivery, session, hold, done: (told) => (acked = told) });
    } finally {
      leave();
    }
    return acked;
  };
  const receiving = (from: readonly string[]): Receive => {
    const missed = (topic: string, messages: number | null): void => observe({ type: "subscriber.missed", consumer, topic, messages });
    const subscription = { consumer, topics: from, prefetch, waiting: maxWaiting, bytes: prefetchBytes, missed };
    return { source, subscription, draining, stopping, clock, random, observe, troubles, take };
  };

  const redrive = (topic: string, kept: Letters) => ({ consumer, topic, letters: kept, draining, clock, troubles, take });
  /** The process that has the seat applies both the broker's deliveries and the redriven letters. */
  const both = async (topic: string, lost: AbortSignal, trusted: () => boolean): Promise<void> => {
    const redriving = letters === null ? null : redriveLetters(redrive(topic, letters), lost, trusted);
    await receive(receiving([topic]), lost, trusted);
    await redriving;
  };

  observe({ type: "subscriber.started", consumer, topics });
  if ((await until(draining, connected(source, draining, parts))) === null) return;
  const ended = new AbortController();
  void watch(path, seatMs / 3, ended.signal);
  const forgetting = { consumer, topics, owner, inbox, source, clock, random, observe, troubles };
  const progressing = (): boolean => progress.overdue().length === 0;
  const places = source.can.assign ? topics.map((topic) => ({ consumer, topic, owner })) : [];
  const present = places.length === 0 ? null : keepPresence({ inbox, places, seatMs, progressing, clock }, ended.signal);
  const forgot = retentionMs === null ? null : forgetOld({ ...forgetting, retentionMs }, ended.signal);
  try {
    if (source.can.assign) {
      run.ready();
      const redriving =
        letters === null ? [] : topics.map((topic) => redriveInTurn({ ...redrive(topic, letters), ...{ inbox, owner, seatMs, stopping } }));
      await receive(receiving(topics), stopping, () => true);
      await until(stopping, Promise.all(redriving));
    } else {
      const seats = topics.map((topic) => ({
        topic,
        seat: createSeat({ inbox, place: { consumer, topic, owner }, seatMs, draining, stopping, progressing, clock, observe, troubles }),
      }));
      await until(draining, Promise.all(seats.map(({ seat }) => seat.ask())));
      run.ready();
      await Promise.all(seats.map(({ topic, seat }) => seat.keep((lost, trusted) => both(topic, lost, trusted))));
    }
    await until(stopping, turns.idle());
    if (stopping.aborted) await within(clock, rollbackMs, turns.idle());
  } finally {
    ended.abort();
    await within(clock, rollbackMs, Promise.all([present, forgot]), stopping);
  }
}

/** An unreachable broker is retried later, when sessions receive. An error that no retry can fix is thrown at once. */
async function connected<Tx>(source: Source, signal: AbortSignal, { troubles }: Subscribe<Tx>["parts"]): Promise<true> {
  try {
    await source.connect(signal);
  } catch (cause) {
    const error = asError(cause);
    if (isWaybillError(error) && !error.retryable) throw error;
    troubles.met("receive", error);
  }
  return true;
}

/** Reports overdue steps. They neither end nor fail, so nothing else would report them. */
async function watch<Tx>({ progress, clock, troubles }: Path<Tx>, everyMs: number, ended: AbortSignal): Promise<void> {
  const overdue = new Error("it has not ended in its time; its topic is left to others");
  const told = new WeakSet<UnderWay>();
  while (!ended.aborted) {
    for (const step of progress.overdue()) {
      if (told.has(step)) continue;
      told.add(step);
      troubles.overdue(step.name, overdue, step.topic, step.id);
    }
    await clock.sleep(everyMs, ended);
  }
}
