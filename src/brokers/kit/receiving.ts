import type { Delivery, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { whole } from "../../core/options.ts";
import { createRoom, type Room } from "../../core/room.ts";
import { follow, type Follower } from "../../core/time.ts";
import { unreadableEnvelope } from "../../core/unreadable.ts";
import { createWake, type Wake } from "../../core/wake.ts";

/** Throws for an invalid subscription. Returns its topics, each once. */
export function checkSubscription({ consumer, topics, prefetch, waiting = 0, bytes, stalls = 0 }: Subscription): readonly string[] {
  if (typeof consumer !== "string" || consumer === "") {
    throw new WaybillError("INVALID_OPTION", `consumer must be a name, not ${JSON.stringify(consumer)}`);
  }
  if (topics.length === 0) throw new WaybillError("INVALID_OPTION", `consumer ${consumer} needs at least one topic`);
  whole("prefetch", prefetch);
  whole("waiting", waiting, 0);
  if (bytes !== undefined) whole("bytes", bytes);
  whole("stalls", stalls, 0);
  return [...new Set(topics)];
}

/** Yields what `begin` yields, until one of the signals aborts or the caller stops iterating. */
export function receiving<T>(
  signal: AbortSignal,
  closing: AbortSignal,
  begin: (ending: Follower) => AsyncGenerator<T, undefined>,
): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator]() {
      const ending = follow(signal, closing);
      // A generator that the caller never resumes would not release it.
      ending.signal.addEventListener("abort", () => ending.release(), { once: true });
      const deliveries = begin(ending);
      return {
        next: () => deliveries.next(),
        return() {
          // Otherwise a generator that waits for its next message would not notice.
          ending.abort();
          ending.release(); // a generator that has not begun does not release it
          return deliveries.return(undefined);
        },
      };
    },
  };
}

/** The event of a message, or why it is not an event. */
export type Content = Pick<Delivery, "envelope" | "unreadable">;

export const unreadable = (place: string | number, why: string, raw: Uint8Array): Content => ({
  envelope: unreadableEnvelope(`unreadable:${place}`),
  unreadable: { why, raw },
});

/** A message that a reader has, with the reader's part of its acknowledgement. */
export interface Received extends Content {
  readonly topic: string;
  readonly bytes: number;
  ack(): void | Promise<void>;
  aside?(): void;
}

/** Reads for one receiving. */
export interface Reader {
  /** The messages to deliver now, in order; null when there is nothing, or no room. Throws the reason when nothing more will come. */
  next(room: Room): readonly Received[] | null | Promise<readonly Received[] | null>;
  /** The receiving is over: its signal has aborted. Acknowledgements may still come. */
  close?(): void | Promise<void>;
}

export interface ReaderOptions {
  readonly clock: Clock;
  readonly closing: AbortSignal;
  /** How long to wait after a read that found nothing, unless a hint comes. */
  readonly waitMs: number;
  open(signal: AbortSignal, wake: Wake): Reader | Promise<Reader>;
}

/** Delivers what one reader reads, as far as the subscription has room. */
export const receivingFrom = (subscription: Subscription, signal: AbortSignal, options: ReaderOptions): AsyncIterable<Delivery> =>
  receiving(signal, options.closing, (ending) => deliver(subscription, ending, options));

async function* deliver(
  bounds: Subscription,
  { signal, abort, release }: Follower,
  { clock, waitMs, open }: ReaderOptions,
): AsyncGenerator<Delivery, undefined> {
  const room = createRoom(bounds);
  const wake = createWake();
  // Waking the reader for every single ack would cost a read and a request each. A slow handler's delivery does not count against the room.
  const enough = Math.max(1, Math.floor(bounds.prefetch / 2));
  const makeRoom = (): void => {
    if (room.left >= enough) wake.notify();
  };
  let reader: Reader | null = null;
  try {
    if (!signal.aborted) reader = await open(signal, wake);
    while (reader !== null && !signal.aborted) {
      const batch = await reader.next(room);
      if (batch === null) await wake.wait(clock, waitMs, signal);
      for (const received of batch ?? []) {
        if (signal.aborted) return;
        yield deliveryOf(received, room, makeRoom);
      }
    }
  } catch (error) {
    // An error after the abort is no failure: the abort cut the work short.
    if (!signal.aborted) throw error;
  } finally {
    abort();
    release();
    await reader?.close?.();
  }
}

function deliveryOf({ ack, aside, ...message }: Received, room: Room, makeRoom: () => void): Delivery {
  const taken = room.take(message.bytes);
  return {
    ...message,
    async ack() {
      taken.ack();
      makeRoom();
      await ack();
    },
    aside() {
      taken.aside();
      aside?.();
      makeRoom();
    },
  };
}
