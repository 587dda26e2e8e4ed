import type { Delivery, Source, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import type { NewId } from "../../core/ids.ts";
import { createRoom } from "../../core/room.ts";
import { follow, type Follower } from "../../core/signal.ts";
import { createWake } from "../../core/wake.ts";
import { checkSubscription, receiving } from "../kit/receiving.ts";
import type { Acks } from "./acks.ts";
import { explain, type Link } from "./link.ts";
import { openSession } from "./session.ts";

export interface SourceOptions {
  readonly link: Link;
  readonly acks: Acks;
  readonly clock: Clock;
  readonly newId: NewId;
  readonly provision: boolean;
  readonly closing: AbortSignal;
}

/** While it is full, how long it takes to notice that the connection is gone. */
const lookMs = 1_000;
const maxDateMs = 8.64e15;
/**
 * After a receiving without progress, entries are read one at a time until so many are acknowledged: the server may end connections for an
 * answer that is too large. Entries that are only delivered do not count: those of a failing aggregate come first in every receiving.
 */
const carefulAcks = 256;

/**
 * A topic's consumers are the stream's groups. What a session was given and did not acknowledge is pending in the group, and comes
 * first, in order, to the next session; only then what is new.
 */
export function createSource(options: SourceOptions): Required<Pick<Source, "receive" | "oldest">> {
  return {
    async oldest(topic, signal) {
      const { link } = options;
      const [reply] = await link.ask(await link.open(signal), [["XRANGE", topic, "-", "+", "COUNT", "1"]]).catch((error: unknown) => {
        throw explain(error, link.shown);
      });
      // An entry's id begins with the server's time in milliseconds, unless somebody gave it another: then it is as old as it says.
      const [first] = reply as readonly (readonly [Buffer, unknown])[];
      return first === undefined ? null : new Date(Math.min(Number.parseInt(String(first[0]), 10), maxDateMs));
    },
    receive(subscription, signal) {
      const topics = checkSubscription(subscription);
      return receiving(signal, options.closing, (ending) => iterate({ ...subscription, topics }, ending, options));
    },
  };
}

async function* iterate(
  { consumer, topics, missed = () => undefined, stalls = 0, ...bounds }: Subscription,
  { signal, release }: Follower,
  options: SourceOptions,
): AsyncGenerator<Delivery, undefined> {
  const { acks, clock } = options;
  const room = createRoom(bounds);
  const wake = createWake();
  let careful = stalls > 0 ? carefulAcks : 0;
  try {
    if (signal.aborted) return;
    const session = await openSession({ ...options, consumer, topics, missed }, signal);
    const alive = follow(signal, session.ended);
    try {
      while (!signal.aborted) {
        session.ended.throwIfAborted();
        if (room.left <= 0) {
          await wake.wait(clock, lookMs, alive.signal);
          continue;
        }
        for (const { id, ...received } of await session.next(careful > 0 ? 1 : room.left, room.bytesLeft)) {
          const { topic, bytes } = received;
          const taken = room.take(bytes);
          if (signal.aborted) return;
          yield {
            ...received,
            async ack() {
              careful -= 1;
              taken.ack();
              wake.notify();
              await acks.ack(topic, consumer, id);
            },
            aside() {
              taken.aside();
              wake.notify();
            },
          };
        }
      }
    } finally {
      alive.release();
      session.close();
    }
  } catch (error) {
    // What the end of the connection cuts short is no failure when the end was asked for.
    if (!signal.aborted) throw error;
  } finally {
    release();
  }
}
