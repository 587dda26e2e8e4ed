import type { Clock } from "../core/clock.ts";
import { isWaybillError } from "../core/errors.ts";
import type { Observe } from "../core/path-events.ts";
import { follow, type Follower, within } from "../core/time.ts";
import type { Inbox, Seat as Place } from "../contracts/inbox.ts";
import type { SubscriberTroubles } from "./trouble.ts";

interface SeatOptions {
  readonly inbox: Pick<Inbox<never>, "sit" | "leave">;
  readonly place: Place;
  readonly seatMs: number;
  readonly draining: AbortSignal;
  readonly stopping: AbortSignal;
  /** False while a step is overdue: the seat is not renewed then, so that it expires and another process can take over. */
  readonly progressing: () => boolean;
  readonly clock: Clock;
  readonly observe: Observe;
  readonly troubles: SubscriberTroubles;
}

/** The right to be the one subscriber process of a consumer on a topic. */
interface Seat {
  /** Asks for the seat once. Rejects when a retry would not help either. */
  ask(): Promise<boolean>;
  /**
   * Runs `work` whenever the seat is held, until draining, and then leaves the seat. `lost` aborts, and `trusted` is false,
   * before another owner can sit.
   */
  keep(work: (lost: AbortSignal, trusted: () => boolean) => Promise<void>): Promise<void>;
}

const pollMs = 500;
const leaveMs = 5_000;

export function createSeat({ inbox, place, seatMs, draining, stopping, progressing, clock, observe, troubles }: SeatOptions): Seat {
  const renewMs = seatMs / 3;
  // The seat expires `seatMs` after the database granted it. It is trusted for less, counted from before the request.
  const trustMs = seatMs * 0.8;
  let trustedUntil = -Infinity;
  let refused = true;

  const trouble = (error: unknown): void => troubles.met("seat", error, place.topic);

  const ask = async (): Promise<boolean> => {
    const from = clock.monotonic();
    refused = false;
    const held = await inbox.sit(place, seatMs);
    troubles.over("seat", place.topic);
    refused = !held;
    trustedUntil = held ? Math.max(trustedUntil, from + trustMs) : -Infinity;
    return held;
  };
  const askWithin = async (ms: number): Promise<boolean | null> => {
    try {
      return await within(clock, ms, ask(), stopping);
    } catch (error) {
      trouble(error);
      return null;
    }
  };

  const renew = async (lost: Follower, trusted: () => boolean, done: AbortSignal): Promise<void> => {
    let waitMs = renewMs;
    for (;;) {
      await clock.sleep(Math.max(1, Math.min(waitMs, trustedUntil - clock.monotonic())), done);
      if (done.aborted || !trusted()) return;
      const held = progressing() ? await askWithin(trustedUntil - clock.monotonic()) : null;
      if (held === false) return lost.abort();
      waitMs = held === true ? renewMs : renewMs / 5;
    }
  };

  const hold = async (work: (lost: AbortSignal, trusted: () => boolean) => Promise<void>): Promise<void> => {
    const lost = follow(stopping);
    const done = new AbortController();
    const trusted = (): boolean => {
      if (clock.monotonic() >= trustedUntil) lost.abort();
      return !lost.signal.aborted;
    };
    observe({ type: "subscriber.seat", consumer: place.consumer, topic: place.topic, held: true });
    const renewing = renew(lost, trusted, done.signal);
    try {
      await work(lost.signal, trusted);
    } finally {
      done.abort();
      await renewing;
      lost.release();
      observe({ type: "subscriber.seat", consumer: place.consumer, topic: place.topic, held: false });
    }
  };

  const leave = async (): Promise<void> => {
    if (refused || stopping.aborted) return;
    try {
      await within(clock, leaveMs, inbox.leave(place), stopping);
    } catch (error) {
      trouble(error); // the seat expires by itself
    }
  };

  return {
    async ask() {
      try {
        return await ask();
      } catch (error) {
        if (!isWaybillError(error) || !error.retryable) throw error;
        trouble(error);
        return false;
      }
    },
    async keep(work) {
      for (;;) {
        if (clock.monotonic() < trustedUntil && !draining.aborted) await hold(work);
        if (draining.aborted) return leave();
        const held = progressing() ? await askWithin(seatMs) : null;
        if (held !== true) await clock.sleep(Math.min(pollMs, renewMs), draining);
      }
    },
  };
}
