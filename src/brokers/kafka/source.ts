import type { Delivery, Source, Subscription } from "../../contracts/source.ts";
import { createRoom } from "../../core/room.ts";
import type { Follower } from "../../core/time.ts";
import { checkSubscription, receiving } from "../kit/receiving.ts";
import type { Link, Topic } from "./link.ts";
import { lagOf, oldestOf } from "./reading/offsets.ts";
import { mostUnpacked } from "./reading/batches.ts";
import { openSession, type GroupSession } from "./reading/session.ts";
import { checkTopic, type Directory } from "./topics.ts";

interface SourceOptions {
  readonly link: Link;
  readonly directory: Directory;
  readonly sessionMs: number;
}

/** A consumer is a group, and each `receive` is a member of it. The group's coordinator assigns each partition to one member. */
export function createSource(options: SourceOptions): Required<Pick<Source, "receive" | "oldest" | "lag">> & { close(): Promise<void> } {
  const closing = new AbortController();
  /** Sessions that have not left their groups yet. */
  const sessions = new Map<GroupSession, { readonly consumer: string; over: boolean }>();
  const opened = (consumer: string, session: GroupSession): (() => void) => {
    const entry = { consumer, over: false };
    sessions.set(session, entry);
    return () => {
      entry.over = true;
      void session.retire().finally(() => sessions.delete(session));
    };
  };
  /** A consumer that receives again is done with its earlier sessions: the new session must not wait for its own predecessor. */
  const clear = (consumer: string): Promise<unknown> =>
    Promise.all([...sessions].filter(([, entry]) => entry.over && entry.consumer === consumer).map(([session]) => session.end()));
  return {
    oldest: (topic, signal) => oldestOf(options.link, topic, signal),
    lag: (topic, signal, consumer) => lagOf(options.link, topic, consumer, signal),
    receive(subscription, signal) {
      const topics = checkSubscription(subscription);
      for (const topic of topics) checkTopic(topic, "INVALID_OPTION");
      return receiving(signal, closing.signal, (ending) => iterate({ ...subscription, topics }, ending, options, { opened, clear }));
    },
    async close() {
      closing.abort();
      await Promise.all([...sessions.keys()].map((session) => session.end()));
    },
  };
}

interface Sessions {
  /** Notes a session. The caller calls the returned function when its receiving is over. */
  opened(consumer: string, session: GroupSession): () => void;
  clear(consumer: string): Promise<unknown>;
}

async function* iterate(
  { consumer, topics, missed, ...bounds }: Subscription,
  { signal, release }: Follower,
  { link, directory, sessionMs }: SourceOptions,
  sessions: Sessions,
): AsyncGenerator<Delivery, undefined> {
  const room = createRoom(bounds);
  let over: (() => void) | null = null;
  try {
    if (signal.aborted) return;
    await sessions.clear(consumer);
    const found = await find(directory, topics, signal);
    if (signal.aborted) return;
    const session = openSession({
      ...{ link, consumer, ...found, sessionMs, bytes: bounds.bytes ?? Infinity, bytesLeft: () => room.bytesLeft },
      missed: (topic, messages) => missed?.(topic, messages),
    });
    over = sessions.opened(consumer, session);
    while (!signal.aborted) {
      if (session.failure !== null) throw session.failure;
      const received = session.next(room);
      if (received === undefined) await session.changed(signal);
      else yield received;
    }
  } catch (error) {
    // After the signal has aborted, an error is no failure: the end cut the work short.
    if (!signal.aborted) throw error;
  } finally {
    release();
    over?.();
  }
}

interface Found {
  readonly topics: ReadonlyMap<string, Topic>;
  readonly batchBytes: number;
}

async function find(directory: Directory, names: readonly string[], signal: AbortSignal): Promise<Found> {
  for (const name of names) directory.forget(name);
  const topics = new Map<string, Topic>();
  let batchBytes = mostUnpacked;
  for (const [name, place] of await directory.find(names, signal)) {
    if (place instanceof Error) throw place;
    topics.set(name, place.topic);
    if (Number.isFinite(place.limit)) batchBytes = Math.max(batchBytes, place.limit);
  }
  return { topics, batchBytes };
}
