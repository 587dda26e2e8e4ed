import type { Assignment as OfSource, Unreadable } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import { createAckLedger, type AckLedger } from "../kit/ack-ledger.ts";
import { asError } from "../../core/errors.ts";
import type { Envelope } from "../../core/event.ts";
import type { Room } from "../../core/room.ts";
import { shared } from "../../core/signal.ts";
import { idOfBytes, unreadableEnvelope } from "../../core/unreadable.ts";
import { createWake } from "../../core/wake.ts";
import type { Assignment } from "./assignment.ts";
import { codes, isPassing, KafkaRefusal } from "./codes.ts";
import { createCommits, forgotten } from "./commits.ts";
import { startFetching, type Fetching, type Reading } from "./fetching.ts";
import type { Link, Topic } from "./link.ts";
import { createMember, type Spot } from "./member.ts";
import { envelopeOf } from "./message.ts";
import type { Item } from "./records.ts";

export interface SessionOptions {
  readonly link: Link;
  readonly consumer: string;
  /** All of them are there. */
  readonly topics: ReadonlyMap<string, Topic>;
  readonly sessionMs: number;
  /** How many bytes may be fetched at once. */
  readonly bytes: number;
  /** How many bytes more may be taken; those that are fetched and not taken count too. */
  readonly bytesLeft: () => number;
  readonly missed: (topic: string, messages: number) => void;
}

export interface Received {
  readonly topic: string;
  readonly envelope: Envelope;
  readonly unreadable?: Unreadable;
  readonly assignment: OfSource;
  readonly bytes: number;
  /** Once is enough. Resolves at once while the session lasts, and when it is about to end, when the broker has it. */
  ack(): Promise<void>;
  aside(): void;
}

/** One member of the consumer's group, from joining to leaving. */
export interface Session {
  /** The next message, if there is one and room for its bytes, which it takes until its ack; every partition has its turn. */
  next(room: Room): Received | undefined;
  /** Resolves when something has come or changed, after a while, or when the signal aborts. */
  changed(signal: AbortSignal): Promise<void>;
  readonly failure: Error | null;
  /** Nothing more is delivered. It waits a little for what is in hand, and leaves. */
  retire(): Promise<void>;
  /** Leaves now. */
  end(): Promise<void>;
}

/** A partition of ours. Once another may have it, it is `lost` for good: should it come back, it begins anew. */
interface Owned extends Reading {
  readonly ledger: AckLedger<bigint>;
  lost: boolean;
  readonly ending: AbortController;
  readonly assignment: OfSource;
  /** Releases each delivery that is not acknowledged. */
  readonly open: Set<() => void>;
}

const lookMs = 1_000;
const heartbeatMs = 1_000;
/** How long the others wait, when all join again, for us to be done with what is in hand. */
const handoverMs = 3_000;
const retireMs = 1_000;
const closeMs = 1_000;
/** How often we look whether topics have got more partitions. */
const beatsPerLook = 30;

export function openSession({ link, consumer, topics, sessionMs, bytes, bytesLeft, missed }: SessionOptions): Session {
  const { clock } = link;
  const ending = shared(new AbortController());
  const rebalanceMs = sessionMs + handoverMs;
  /** What is acknowledged, and not recorded when another reads on, comes again. */
  const flushMs = Math.min(3_000, sessionMs / 2);
  const member = createMember({ link, group: consumer, topics: [...topics.keys()], sessionMs, rebalanceMs });
  const wake = createWake();
  let owned: readonly Owned[] = [];
  let fetching: Fetching | null = null;
  let failure: Error | null = null;
  /** While we join nothing is committed: the coordinator would take it in the name of the new round, where the partition may be another's. */
  let mayCommit = false;
  let delivering = false;
  let retiring = false;
  let heard = 0;
  /** The members join again. Nobody else is given what is ours before the coordinator has heard us, or has given up waiting for us. */
  let sharing = false;
  let inHand = 0;
  let turn = 0;

  const fail = (error: unknown): void => {
    failure ??= asError(error);
    wake.notify();
  };
  const commits = createCommits<Owned>({
    ...{ member, clock, ending: ending.signal, allowed: () => mayCommit && failure === null },
    refused: (code) => fail(new KafkaRefusal(code, `${link.shown} does not take the offsets of ${consumer}`)),
  });
  const lose = (those: readonly Owned[]): void => {
    for (const partition of those) {
      partition.lost = true;
      commits.forget(partition);
      partition.ending.abort();
      // A delivery that is left is never acknowledged: it must not keep others out, nor the next handover waiting.
      for (const release of [...partition.open]) release();
    }
  };
  const beginning = (spot: Spot, committed: bigint | null): Owned => {
    const gone = shared(new AbortController());
    const inTouch = (): boolean => clock.monotonic() - heard <= (sharing ? rebalanceMs : sessionMs);
    return {
      ...{ topic: spot.topic, index: spot.index, from: committed ?? 0n, fresh: committed === null },
      ...{ queue: [], bytes: 0, ledger: createAckLedger<bigint>(), lost: false },
      ...{ ending: gone, open: new Set(), assignment: { ended: gone.signal, ours: () => !gone.signal.aborted && inTouch() } },
    };
  };

  /** Commits where a partition begins: until then its group looks new, and a new group has missed nothing. */
  const begun = (partition: Owned): void => {
    partition.ledger.open(partition.from - 1n)();
    commits.note(partition);
  };

  const reconcile = async (assignment: Assignment, before: number): Promise<void> => {
    const wanted = [...assignment].flatMap(([topic, indexes]) => indexes.map((index) => ({ topic, index })));
    // In the very next round nobody else can have had what was ours and is ours again.
    const stay = member.generation === before + 1 ? owned : [];
    const kept = wanted.map(({ topic, index }) => stay.find((one) => !one.lost && one.topic === topic && one.index === index));
    lose(owned.filter((one) => !kept.includes(one)));
    const fresh = wanted.filter((_, i) => kept[i] === undefined);
    const starts = fresh.length === 0 ? [] : await member.committed(fresh, ending.signal);
    owned = [...kept.filter((one) => one !== undefined), ...fresh.map((spot, i) => beginning(spot, starts[i] ?? null))];
  };

  /** Until we have to join again (true if as the same member), or the session ends. */
  const beat = async (): Promise<boolean> => {
    for (let beats = 1; !ending.signal.aborted && failure === null; beats++) {
      await clock.sleep(Math.min(heartbeatMs, sessionMs / 4), ending.signal);
      if (ending.signal.aborted) return true;
      try {
        if (beats % beatsPerLook === 0 && (await grown())) return true;
        const asked = clock.monotonic();
        const code = await member.heartbeat();
        if (code === codes.REBALANCE_IN_PROGRESS) {
          heard = asked;
          return true;
        }
        if (forgotten.includes(code)) return false;
        if (code !== codes.NONE) throw new KafkaRefusal(code, `${link.shown}, group ${consumer}`);
        heard = asked;
      } catch (error) {
        if (error instanceof KafkaRefusal && !isPassing(error.kafkaCode)) throw error;
        // By now the others may have what was ours.
        if (clock.monotonic() - heard > sessionMs) throw error;
      }
    }
    return true;
  };
  const grown = async (): Promise<boolean> => {
    const { topics: now } = await link.look([...topics.keys()], ending.signal);
    return [...topics].some(([name, before]) => {
      const topic = now.get(name);
      return topic !== undefined && !(topic instanceof Error) && topic.partitions.length !== (counts.get(name) ?? before.partitions.length);
    });
  };
  const counts = new Map<string, number>();

  /** Nothing more is delivered; what is in hand is waited for, for a while, and committed. */
  const handOver = async (): Promise<void> => {
    const until = clock.monotonic() + handoverMs;
    while (inHand > 0 && clock.monotonic() < until && !ending.signal.aborted) {
      const hinted = await wake.wait(clock, Math.min(heartbeatMs, sessionMs / 4, until - clock.monotonic()), ending.signal);
      if (!hinted) await member.heartbeat().catch(() => undefined);
    }
    await within(clock, flushMs, commits.flush());
  };

  const run = async (): Promise<void> => {
    for (let same = true; !ending.signal.aborted && failure === null;) {
      const before = same ? member.generation : -2;
      const assignment = await member.join(ending.signal);
      await reconcile(assignment, before);
      const { topics: now } = await link.look([...topics.keys()], ending.signal);
      for (const [name, topic] of now) if (!(topic instanceof Error)) counts.set(name, topic.partitions.length);
      if (ending.signal.aborted) return;
      heard = clock.monotonic();
      sharing = false;
      mayCommit = true;
      delivering = !retiring;
      void commits.flush();
      fetching = startFetching<Owned>({
        ...{ link, readings: owned, topics, patienceMs: sessionMs, bytes, bytesLeft, missed },
        ...{ begun, arrived: () => wake.notify(), failed: fail },
      });
      wake.notify();
      same = await beat();
      fetching.stop();
      delivering = false;
      sharing = true;
      if (!same) lose(owned);
      else await handOver();
      mayCommit = false;
    }
  };

  const running = run().catch((error: unknown) => {
    if (!ending.signal.aborted) fail(error);
  });
  let ended: Promise<void> | null = null;
  const finish = async (): Promise<void> => {
    retiring = true;
    delivering = false;
    fetching?.stop();
    if (failure === null) await within(clock, flushMs, commits.flush());
    ending.abort();
    lose(owned);
    await within(clock, closeMs, member.leave());
    member.end();
    await within(clock, closeMs, running);
  };
  const end = (): Promise<void> => (ended ??= finish());

  const receivedOf = (partition: Owned, item: Item, room: Room): Received => {
    const { first, last, bytes } = item;
    const taken = room.take(bytes);
    const acknowledge = partition.ledger.open(first, last);
    let held: "in hand" | "aside" | "acked" = "in hand";
    inHand += 1;
    const free = (now: "aside" | "acked"): void => {
      if (held === "in hand") inHand -= 1;
      if (held !== "acked") held = now;
      if (held === "acked") {
        taken.ack();
        partition.open.delete(release);
      } else taken.aside();
      wake.notify();
      fetching?.taken();
    };
    const release = (): void => free("acked");
    partition.open.add(release);
    return {
      topic: partition.topic,
      ...readOf(partition, item),
      ...{ assignment: partition.assignment, bytes },
      async ack() {
        if (held === "acked") return;
        free("acked");
        if (acknowledge()) commits.note(partition);
        if (retiring) await within(clock, flushMs, commits.flush());
      },
      aside: () => free("aside"),
    };
  };

  return {
    get failure() {
      return failure;
    },
    changed: async (signal) => void (await wake.wait(clock, lookMs, signal)),
    next(room) {
      // Who is out of touch works in vain: soon others are given all of it.
      if (!delivering || clock.monotonic() - heard > sessionMs / 2) return undefined;
      for (let n = 0; n < owned.length; n++) {
        const partition = owned[turn % owned.length]!;
        for (let item = partition.queue[0]; item !== undefined; item = partition.queue[0]) {
          const nothing = item.record === null && item.unreadable === undefined;
          // It keeps its turn: smaller ones of other partitions would keep it out for ever.
          if (!nothing && !room.fits(item.bytes)) return undefined;
          partition.queue.shift();
          partition.bytes -= item.bytes;
          fetching?.taken();
          if (nothing) {
            if (partition.ledger.open(item.first, item.last)()) commits.note(partition);
            continue;
          }
          turn += 1;
          return receivedOf(partition, item, room);
        }
        turn += 1;
      }
      return undefined;
    },
    async retire() {
      if (ended !== null) return ended;
      retiring = true;
      delivering = false;
      fetching?.stop();
      const until = clock.monotonic() + retireMs;
      const worthIt = (): boolean => inHand > 0 && mayCommit && failure === null && clock.monotonic() < until;
      while (worthIt() && ended === null) await wake.wait(clock, until - clock.monotonic(), ending.signal);
      await end();
    },
    end,
  };
}

function readOf({ index }: Owned, { first, last, record, unreadable }: Item): Pick<Received, "envelope" | "unreadable"> {
  const found = unreadable ?? envelopeOf(record!);
  if (typeof found !== "string" && "id" in found) return { envelope: found };
  const { why, raw } = typeof found === "string" ? { why: found, raw: record!.raw } : found;
  const place = `partition ${index}, ${record !== null || first === last ? `offset ${last}` : `offsets ${first} to ${last}`}`;
  // A topic that is deleted and made anew has other messages at the same places.
  const id = `unreadable:${index}@${last}:${idOfBytes(raw).slice(-16)}`;
  return { envelope: unreadableEnvelope(id), unreadable: { why: `${why} (${place})`, raw: Uint8Array.from(raw) } };
}

/** Whatever comes of it, and no longer than so. */
async function within(clock: Clock, ms: number, work: Promise<unknown>): Promise<void> {
  const done = new AbortController();
  await Promise.race([work.catch(() => undefined), clock.sleep(ms, done.signal)]);
  done.abort();
}
