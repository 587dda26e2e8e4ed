import type { Inbox } from "../contracts/inbox.ts";
import type { LetterRecord, Letters } from "../contracts/letters.ts";
import type { Delivery } from "../contracts/source.ts";
import type { Clock } from "../core/clock.ts";
import { asError, isWaybillError } from "../core/errors.ts";
import { aggregateKey } from "../core/event.ts";
import { createRoom, type Room } from "../core/room.ts";
import { follow, until } from "../core/time.ts";
import { unreadableEnvelope } from "../core/unreadable.ts";
import { createWake, type Wake } from "../core/wake.ts";
import type { Session } from "./session.ts";
import type { SubscriberTroubles } from "./trouble.ts";

interface Redrive {
  readonly consumer: string;
  readonly topic: string;
  readonly letters: Pick<Letters, "redriven" | "show">;
  readonly draining: AbortSignal;
  readonly clock: Clock;
  readonly troubles: SubscriberTroubles;
  /** Settles when the delivery is done with, or left. */
  readonly take: (delivery: Delivery, session: Session) => Promise<boolean>;
}

/** How often to look for letters that an operator has redriven. */
const pollMs = 1_000;
/** How many letters are in hand at once, how many more may wait for their next attempt, and how many bytes each of the two may take. */
const bounds = { prefetch: 64, waiting: 1_000, bytes: 32 * 1024 * 1024 };
/** A subscriber writes no row larger than this, and a client library that reads one may end the process. */
const mostBytes = 128 * 1024 * 1024;
const maxUnread = 3;

/** The letters of a topic that one process has under way. */
interface Hand {
  readonly session: Session;
  readonly room: Room;
  readonly wake: Wake;
  readonly under: Map<bigint, Promise<void>>;
  /** How often a letter could not be read. */
  readonly unread: Map<bigint, number>;
  /** Leaves all of them: followers must not overtake a letter that was left. */
  leave(): void;
}

/** Applies redriven letters of a topic for as long as this process is the only one that does, until draining or `lost`. */
export async function redriveLetters(options: Redrive, lost: AbortSignal, trusted: () => boolean): Promise<void> {
  const { draining, clock } = options;
  const unread = new Map<bigint, number>();
  const over = follow(draining, lost);
  try {
    while (!over.signal.aborted && trusted()) {
      await redriveOnce(options, unread, lost, trusted);
      await clock.sleep(pollMs, over.signal);
    }
  } finally {
    over.release();
  }
}

async function redriveOnce(options: Redrive, unread: Map<bigint, number>, lost: AbortSignal, trusted: () => boolean): Promise<void> {
  const { draining, clock, troubles, topic } = options;
  const ending = follow(lost);
  const over = follow(draining, ending.signal);
  const session: Session = {
    ...{ ended: ending.signal, over: over.signal },
    ours: () => !over.signal.aborted && trusted(),
    held: () => !ending.signal.aborted && trusted(),
  };
  const hand: Hand = { session, room: createRoom(bounds), wake: createWake(), under: new Map(), unread, leave: ending.abort };
  try {
    while (session.ours()) {
      let more = false;
      try {
        more = (await until(over.signal, look(options, hand))) ?? false;
      } catch (error) {
        if (!over.signal.aborted) troubles.met("redrive", error, topic);
      }
      if (more) await roomier(hand, clock);
      else await clock.sleep(pollMs, over.signal);
    }
    // Otherwise the next process in the seat would wait for these transactions, and count their failures twice.
    await until(lost, Promise.all(hand.under.values()));
  } finally {
    ending.release();
    over.release();
  }
}

/** Waits while letters are finished or set aside, until half of the room is free. Ends after a second in which none was. */
async function roomier({ room, wake, session }: Hand, clock: Clock): Promise<void> {
  while ((await wake.wait(clock, pollMs, session.over)) && room.left < bounds.prefetch / 2);
}

/** Begins the letters that are not under way, as far as there is room. True when there may be more. */
async function look(options: Redrive, hand: Hand): Promise<boolean> {
  const { consumer, topic, letters, troubles } = options;
  const { session, room, under, unread } = hand;
  const behind = new Set<string>();
  const limit = under.size + bounds.prefetch;
  const found = await letters.redriven(consumer, topic, limit);
  for (const letter of found) {
    if (!session.ours()) return false;
    if (under.has(letter.seq) || behind.has(aggregateKey(letter))) continue;
    if (!room.fits(letter.bytes)) return true;
    try {
      const delivery = await deliveryOf(letter, letters, unread.get(letter.seq) ?? 0);
      unread.delete(letter.seq);
      if (delivery !== null && session.ours()) begin(options, hand, letter, delivery);
    } catch (error) {
      // The letter waits, and those behind it in its aggregate. A letter that stays unreadable goes back to the operator.
      unread.set(letter.seq, (unread.get(letter.seq) ?? 0) + 1);
      behind.add(aggregateKey(letter));
      troubles.met("redrive", error, topic, letter.id);
    }
  }
  if (behind.size === 0) troubles.over("redrive", topic);
  return behind.size === 0 && found.length === limit;
}

function begin({ take, troubles, topic, draining }: Redrive, hand: Hand, { seq, id, bytes }: LetterRecord, delivery: Delivery): void {
  const { session, room, wake, under, leave } = hand;
  const taken = room.take(bytes);
  const aside = (): void => {
    taken.aside();
    wake.notify();
  };
  const apply = async (): Promise<void> => {
    try {
      if (!(await take({ ...delivery, aside }, session)) && !draining.aborted) leave();
    } catch (error) {
      troubles.met("redrive", error, topic, id);
      leave();
    } finally {
      under.delete(seq);
      taken.ack();
      wake.notify();
    }
  };
  under.set(seq, apply());
}

/** Null when the letter is gone. A message that no handler can be given becomes a letter again, with the reason. */
async function deliveryOf(record: LetterRecord, letters: Pick<Letters, "show">, unread: number): Promise<Delivery | null> {
  const { seq, topic, id, bytes, unfit } = record;
  const rest = { topic, letter: seq, ack: async () => undefined, aside: () => undefined };
  const refused = (why: string): Delivery => ({ ...rest, envelope: unreadableEnvelope(id), unreadable: { why, raw: new Uint8Array(0) } });
  if (unfit !== null) return refused(unfit === "cut" ? "the letter does not hold the whole message" : "the message is no event");
  if (bytes > mostBytes) return refused(`the letter holds ${bytes} bytes, and at most ${mostBytes} are read`);
  try {
    const letter = await letters.show(seq);
    return letter === null ? null : { ...rest, envelope: letter.envelope };
  } catch (error) {
    if (!isWaybillError(error, "ROW_UNREADABLE") && unread + 1 < maxUnread) throw error;
    return refused(asError(error).message);
  }
}

interface Turn extends Redrive {
  readonly inbox: Pick<Inbox<never>, "sit" | "leave">;
  readonly owner: string;
  readonly seatMs: number;
  readonly stopping: AbortSignal;
}

/** The same where the broker assigns, without seats: a process that finds redriven letters takes the topic's seat while there are some. */
export async function redriveInTurn(options: Turn): Promise<void> {
  const { draining, clock, troubles, topic } = options;
  while (!draining.aborted) {
    await clock.sleep(pollMs, draining);
    try {
      if (!draining.aborted) await oneTurn(options);
    } catch (error) {
      if (!draining.aborted) troubles.met("redrive", error, topic);
    }
  }
}

async function oneTurn(options: Turn): Promise<void> {
  const { consumer, topic, owner, letters, inbox, seatMs, draining, stopping, clock } = options;
  const place = { consumer, topic, owner };
  /** A database that never answers must not block a drain. */
  const waiting = async (): Promise<boolean> => ((await until(draining, letters.redriven(consumer, topic, 1))) ?? []).length > 0;
  let trustedUntil = -Infinity;
  const sit = async (): Promise<boolean> => {
    const from = clock.monotonic();
    if ((await until(draining, inbox.sit(place, seatMs))) !== true) return false;
    trustedUntil = from + seatMs * 0.8;
    return true;
  };
  if (!(await waiting()) || !(await sit())) return;
  const lost = follow(stopping);
  let over = false;
  const redriving = redriveLetters(options, lost.signal, () => clock.monotonic() < trustedUntil).finally(() => (over = true));
  try {
    do await clock.sleep(seatMs / 3, draining);
    while (!draining.aborted && (await waiting()) && clock.monotonic() < trustedUntil && (await sit()) && !over);
  } finally {
    // While draining, the letters under way are finished first.
    if (!draining.aborted) lost.abort();
    await redriving;
    lost.release();
  }
  await until(stopping, inbox.leave(place));
}
