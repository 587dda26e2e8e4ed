import { expect } from "vitest";
import type { Draft } from "../../src/core/event.ts";
import { trips, type Database } from "./places.ts";

/** What two writers cost that add an event with one idempotency key at once, for each such pair. */
export interface KeyPrice {
  /** Messages to the database: both transactions. */
  readonly trips: number;
  readonly read: number;
  /** KiB that the database sends. */
  readonly sent: number;
  /** Hints to the relay. */
  readonly wakes: number;
  /** Messages to the database once both are over. */
  readonly idle: number;
  /** Rows in the outbox, and in the other tables. */
  readonly events: number;
  readonly records: Readonly<Record<string, number>>;
}

const pairs = 60;

class Undone extends Error {}

/** The second writer asks for the key while the first one has it and has not ended. */
export async function priceOfKeys(database: Database, firstCommits: boolean): Promise<KeyPrice> {
  await using place = await database.create();
  const transaction = place.transaction!;
  let wakes = 0;
  const wake = { notify: () => void (wakes += 1), wait: async () => false };
  const count = { trips: 0 };
  const pair = async (n: number): Promise<void> => {
    const draft: Draft = { aggregateType: "Priced", aggregateId: `a-${n}`, type: "Added", payload: {}, idempotencyKey: `key-${n}` };
    const [has, waits] = [deferred(), deferred()];
    let id = "";
    const first = transaction(wake, async (add) => {
      ({ id } = await add(draft));
      has.resolve();
      await waits.promise;
      if (!firstCommits) throw new Undone();
    }).catch((error: unknown) => {
      if (!(error instanceof Undone)) throw error;
    });
    await has.promise;
    const second = transaction(wake, async (add) => {
      const adding = add(draft);
      waits.resolve();
      const added = await adding;
      expect(added.duplicate).toBe(firstCommits);
      if (firstCommits) expect(added.id).toBe(id);
    });
    await Promise.all([first, second]);
  };
  await pair(-1); // plans are made, connections are open
  const [before, wokenBefore] = [await place.meter(), wakes];
  await trips.run(count, async () => {
    // One pair after the other: on MySQL, pairs whose keys are neighbours may deadlock when a first one rolls back.
    for (let n = 0; n < pairs; n++) await pair(n);
  });
  await expect.poll(() => wakes - wokenBefore).toBeGreaterThan(0);
  const during = count.trips;
  const after = await place.meter();
  const { states } = await place.store.operator!.status();
  const records = Object.fromEntries(Object.entries(await place.records()).map(([name, many]) => [name, (many - 1) / pairs]));
  return {
    trips: during / pairs,
    read: (after.read! - before.read!) / pairs,
    sent: (after.sent! - before.sent!) / 1_024 / pairs,
    wakes: (wakes - wokenBefore) / pairs,
    idle: (count.trips - during) / pairs,
    events: (states.PENDING - 1) / pairs,
    records,
  };
}

function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve: () => void = () => undefined;
  const promise = new Promise<void>((done) => (resolve = done));
  return { promise, resolve };
}
