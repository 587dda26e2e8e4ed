import { asError } from "../../../core/errors.ts";
import type { Room } from "../../../core/room.ts";
import { shared, within } from "../../../core/time.ts";
import { createWake } from "../../../core/wake.ts";
import { KafkaRefusal } from "../codes.ts";
import { createCommits } from "./commits.ts";
import { createDeliveries, type KafkaReceived } from "./deliveries.ts";
import { createMember } from "./member.ts";
import type { Owned } from "./owned.ts";
import { handoverMs, phases, runRounds, type RoundsOptions, type SessionState } from "./rounds.ts";

type SessionOptions = Pick<RoundsOptions, "link" | "consumer" | "topics" | "sessionMs" | "bytes" | "batchBytes" | "bytesLeft" | "missed">;

/** One member of the consumer's group, from joining to leaving. */
export interface GroupSession {
  /** The next message, if there is one and room for its bytes. It takes the room until its ack. The partitions take turns. */
  next(room: Room): KafkaReceived | undefined;
  /** Resolves when something has come or changed, after a while, or when the signal aborts. */
  changed(signal: AbortSignal): Promise<void>;
  readonly failure: Error | null;
  /** Nothing more is delivered. It waits a little for what is in hand, and leaves. */
  retire(): Promise<void>;
  /** Leaves now. */
  end(): Promise<void>;
}

const lookMs = 1_000;
const retireMs = 1_000;
const closeMs = 1_000;

export function openSession(options: SessionOptions): GroupSession {
  const { link, consumer, topics, sessionMs } = options;
  const { clock } = link;
  const ending = shared(new AbortController());
  const wake = createWake();
  const state: SessionState = { phase: "joining", retiring: false, failure: null, owned: [], fetching: null, heard: 0, inHand: 0 };
  const rebalanceMs = sessionMs + handoverMs;
  /** Acknowledged messages that are not committed when another member reads on are delivered again. */
  const flushMs = Math.min(3_000, sessionMs / 2);

  const fail = (error: unknown): void => {
    state.failure ??= asError(error);
    wake.notify();
  };
  const mayCommit = (): boolean => phases[state.phase].commits && state.failure === null;
  const member = createMember({ link, group: consumer, topics: [...topics.keys()], sessionMs, rebalanceMs });
  const commits = createCommits<Owned>({
    ...{ member, clock, ending: ending.signal, allowed: mayCommit },
    refused: (code) => fail(new KafkaRefusal(code, `${link.shown} does not take the offsets of ${consumer}`)),
  });
  const deliver = createDeliveries(state, { clock, flushMs, commits, wake });
  const running = runRounds(state, { ...options, rebalanceMs, flushMs, member, commits, wake, fail }, ending.signal).catch(
    (error: unknown) => {
      if (!ending.signal.aborted) fail(error);
    },
  );

  const deliverNoMore = (): void => {
    state.retiring = true;
    state.fetching?.stop();
  };
  let ended: Promise<void> | null = null;
  const finish = async (): Promise<void> => {
    deliverNoMore();
    if (state.failure === null) await within(clock, flushMs, commits.flush());
    ending.abort();
    for (const partition of state.owned) partition.lose();
    const left = member.leave().catch(() => undefined);
    await within(clock, closeMs, left);
    member.end();
    await within(clock, closeMs, running);
  };
  const end = (): Promise<void> => (ended ??= finish());

  return {
    get failure() {
      return state.failure;
    },
    changed: async (signal) => void (await wake.wait(clock, lookMs, signal)),
    next(room) {
      // Out of touch with the coordinator, work is wasted: other members soon get our partitions.
      const inTouch = clock.monotonic() - state.heard <= sessionMs / 2;
      return phases[state.phase].delivers && !state.retiring && inTouch ? deliver(room) : undefined;
    },
    async retire() {
      if (ended !== null) return ended;
      deliverNoMore();
      const until = clock.monotonic() + retireMs;
      const worthIt = (): boolean => state.inHand > 0 && mayCommit() && clock.monotonic() < until;
      while (worthIt() && ended === null) await wake.wait(clock, until - clock.monotonic(), ending.signal);
      await end();
    },
    end,
  };
}
