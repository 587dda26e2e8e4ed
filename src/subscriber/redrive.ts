import type { Inbox } from "../contracts/inbox.ts";
import type { LetterRecord, Letters } from "../contracts/letters.ts";
import type { Delivery } from "../contracts/source.ts";
import type { Clock } from "../core/clock.ts";
import { isWaybillError } from "../core/errors.ts";
import { follow } from "../core/time.ts";
import { unreadableEnvelope } from "../core/unreadable.ts";
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
/** How many are applied at once, and how many bytes of them. Those of one aggregate go one after the other all the same. */
const most = 64;
const mostBytes = 32 * 1024 * 1024;

/** Applies redriven letters of a topic for as long as this process is the only one that does, until draining or `lost`. */
export async function redriveLetters(options: Redrive, lost: AbortSignal, trusted: () => boolean): Promise<void> {
  const { draining, clock, troubles, topic } = options;
  const over = follow(draining, lost);
  const session: Session = {
    ...{ ended: lost, over: over.signal },
    ours: () => !over.signal.aborted && trusted(),
    held: () => !lost.aborted && trusted(),
  };
  const under = new Map<bigint, LetterRecord>();
  try {
    while (session.ours()) {
      try {
        await look(options, session, under);
        troubles.over("redrive", topic);
      } catch (error) {
        if (!over.signal.aborted) troubles.met("redrive", error, topic);
      }
      await clock.sleep(pollMs, over.signal);
    }
  } finally {
    over.release();
  }
}

/** Begins what is not under way. */
async function look(options: Redrive, session: Session, under: Map<bigint, LetterRecord>): Promise<void> {
  const { consumer, topic, letters } = options;
  for (const letter of await letters.redriven(consumer, topic, under.size + most)) {
    const bytes = [...under.values()].reduce((sum, each) => sum + each.bytes, letter.bytes);
    if (under.size >= most || (under.size > 0 && bytes > mostBytes) || !session.ours()) return;
    if (under.has(letter.seq)) continue;
    under.set(letter.seq, letter);
    const delivery = await deliveryOf(letter, letters).catch((error: unknown) => {
      under.delete(letter.seq);
      throw error;
    });
    const done = (): void => void under.delete(letter.seq);
    if (delivery === null) done();
    // What fails here fails for a reason that the next look meets too.
    else void options.take(delivery, session).then(done, done);
  }
}

async function deliveryOf({ seq, topic, id }: LetterRecord, letters: Pick<Letters, "show">): Promise<Delivery | null> {
  const rest = { topic, letter: seq, ack: async () => undefined, aside: () => undefined };
  try {
    const letter = await letters.show(seq);
    return letter === null ? null : { ...rest, envelope: letter.envelope };
  } catch (error) {
    if (!isWaybillError(error, "ROW_UNREADABLE")) throw error;
    return { ...rest, envelope: unreadableEnvelope(id), unreadable: { why: error.message, raw: new Uint8Array(0) } };
  }
}

interface Turn extends Redrive {
  readonly inbox: Pick<Inbox<never>, "sit" | "leave">;
  readonly owner: string;
  readonly seatMs: number;
  readonly stopping: AbortSignal;
}

/** The same where the broker assigns and nobody has a seat: whoever finds redriven letters takes the topic's seat while there are some. */
export async function redriveInTurn(options: Turn): Promise<void> {
  const { consumer, topic, owner, letters, inbox, seatMs, draining, stopping, clock, troubles } = options;
  const place = { consumer, topic, owner };
  while (!draining.aborted) {
    await clock.sleep(pollMs, draining);
    try {
      if (draining.aborted || (await letters.redriven(consumer, topic, 1)).length === 0) continue;
      let trustedUntil = clock.monotonic() + seatMs * 0.8;
      if (!(await inbox.sit(place, seatMs))) continue;
      const lost = follow(stopping);
      const redriving = redriveLetters(options, lost.signal, () => clock.monotonic() < trustedUntil);
      for (;;) {
        await clock.sleep(seatMs / 3, draining);
        const from = clock.monotonic();
        const more = !draining.aborted && (await letters.redriven(consumer, topic, 1)).length > 0;
        if (!more || from >= trustedUntil || !(await inbox.sit(place, seatMs))) break;
        trustedUntil = from + seatMs * 0.8;
      }
      lost.abort();
      await redriving;
      lost.release();
      await inbox.leave(place);
    } catch (error) {
      if (!draining.aborted) troubles.met("redrive", error, topic);
    }
  }
}
