import type { Clock } from "../core/clock.ts";
import { within } from "../core/time.ts";
import type { Inbox, Seat as Place } from "../contracts/inbox.ts";

interface Presence {
  readonly inbox: Pick<Inbox<never>, "sit" | "leave">;
  readonly places: readonly Place[];
  readonly seatMs: number;
  /** False while a step is overdue. */
  readonly progressing: () => boolean;
  readonly clock: Clock;
}

/**
 * For brokers that assign aggregates, where no process needs a seat. One of the consumer's processes keeps it all the same: so the inbox's
 * database knows which topics the consumer reads, and whether a process of it runs, when all of them are gone. Leaves when it has ended.
 */
export async function keepPresence(options: Presence, ended: AbortSignal): Promise<void> {
  const { inbox, places, seatMs, progressing, clock } = options;
  const each = (step: (place: Place) => Promise<unknown>): Promise<unknown> =>
    Promise.allSettled(places.map(async (place) => within(clock, seatMs, step(place))));
  while (!ended.aborted) {
    // A database that is away is reported by the steps that need it.
    if (progressing()) await each((place) => inbox.sit(place, seatMs));
    await clock.sleep(seatMs / 3, ended);
  }
  await each((place) => inbox.leave(place));
}
