import { expect } from "vitest";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { aggregateKey } from "../../src/core/event.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import { heapNow } from "./heap.ts";
import { topicRecords } from "./records.ts";
import { trips, type Database, type Meter, type Place } from "./places.ts";
import type { WriterRow } from "./writer-rows.ts";

/** What hostile rows cost, in counts that do not depend on the machine. */
export interface Price {
  /** Messages to the database while the relay deals with the rows, for each thousand of them. */
  readonly trips: number;
  /** Rows that the server reads, for each hostile row. */
  readonly read: number | null;
  /** KiB that the server sends, for each hostile row. */
  readonly sent: number | null;
  /** Path events that an observer hears, for each thousand. */
  readonly told: number;
  /** Messages handed to the broker's client, for each thousand. */
  readonly published: number;
  /** What the relay has in memory afterwards beyond what it had before, in KiB. */
  readonly heap: number;
  /** What it has in memory at most while it deals with the rows, beyond what it had before, in KiB; null where nobody looked. */
  readonly peak: number | null;
  /** Attempts that the rows have spent, for each. */
  readonly attempts: number;
  /** Rows in Waybill's tables afterwards. */
  readonly records: Readonly<Record<string, number>>;
  /** A claim that finds nothing, before and afterwards. */
  readonly idle: Change;
  /** How many claims a second find nothing, afterwards. */
  readonly claims: number;
  /** A hundred good events, before and afterwards. */
  readonly good: Change;
}

interface Change {
  readonly trips: readonly [before: number, after: number];
  readonly read: readonly [before: number, after: number] | null;
}

/** How often the memory is looked at. */
const looks = 8;
const goods = 100;
const idleClaims = 8;
const largest = 1_048_576;

/** Calls of the store, and the messages to the database that they needed. */
function watched(place: Place, look: (settled: number) => Promise<void>) {
  const calls = { open: 0, emptyInARow: 0, empty: 0, trips: 0, emptyTrips: 0, settled: 0, at: 0 };
  const { outbox } = place.store;
  const counted =
    <Given extends readonly unknown[], Result>(call: (...given: Given) => Promise<Result>, isEmpty: (result: Result) => boolean) =>
    async (...given: Given): Promise<Result> => {
      const count = { trips: 0 };
      calls.open += 1;
      try {
        const result = await trips.run(count, () => call(...given));
        if (isEmpty(result)) {
          calls.empty += 1;
          calls.emptyInARow += 1;
          calls.emptyTrips += count.trips;
        } else {
          calls.emptyInARow = 0;
          calls.trips += count.trips;
        }
        return result;
      } finally {
        calls.open -= 1;
      }
    };
  const never = (): boolean => false;
  const settle = counted(outbox.settle, never);
  const store = {
    ...place.store,
    outbox: {
      claim: counted(outbox.claim, ({ id, more }) => id === null && !more),
      payload: counted(outbox.payload, never),
      settle: async (...given: Parameters<typeof settle>) => {
        const report = await settle(...given);
        calls.settled += report.settled;
        await look(calls.settled);
        return report;
      },
      release: counted(outbox.release, never),
      // It asks for the names of topics, a page a second.
      waitingFor: counted(outbox.waitingFor, (found) => found.length === 0),
    },
  };
  return { store, calls };
}

export async function priceOf({ sql, create }: Database, row: WriterRow): Promise<Price> {
  await using place = await create();
  let [lookAgainAt, peak] = [Infinity, 0];
  const { store, calls } = watched(place, async (settled) => {
    if (settled < lookAgainAt) return;
    lookAgainAt = settled + row.count / looks;
    peak = Math.max(peak, await heapNow());
  });
  let [told, published, flowed] = [0, 0, 0];
  const opened = new Set<string>();
  /** Topics of these aggregate types fail, and whether the invented ones exist. */
  const world = { away: "", complete: false };
  const sink: Sink = {
    name: "priced",
    can: { maxBytes: largest },
    connect: () => Promise.resolve(),
    publish: async (batch) => {
      published += batch.length;
      const stopped = new Set<string>();
      return batch.map(({ envelope }) => {
        const { aggregateType: type } = envelope;
        if (stopped.has(aggregateKey(envelope))) return { status: "skipped" };
        if (world.complete && type.startsWith("Invented")) {
          flowed += 1;
          return { status: "stored" };
        }
        if (type !== world.away && (type === "Good" || type === "Order")) return { status: "stored" };
        stopped.add(aggregateKey(envelope));
        return type === "Doomed"
          ? { status: "refused", blame: "event", retryable: false, error: new Error("refused for good") }
          : { status: "refused", blame: "destination", retryable: true, error: new Error("no such topic") };
      });
    },
    probe: async (topic) => {
      if (!world.complete && topic.startsWith("invented")) throw new Error(`no topic ${topic}`);
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const observe = (event: PathEvent): void => {
    told += 1;
    if (event.type === "destination.opened") opened.add(event.topic);
  };
  let relay = createRelay({ store, sink, housekeeping: false, observe });
  await relay.start();
  const quiet = async (timeout = 240_000): Promise<void> => {
    await expect.poll(() => calls.emptyInARow > 3 && calls.open === 0, { timeout, interval: 5 }).toBe(true);
  };
  const between = async (
    work: () => Promise<void>,
  ): Promise<{ trips: number; empty: number; emptyTrips: number } & Pick<Meter, "read" | "sent">> => {
    const [from, before] = [{ ...calls }, await place.meter()];
    await work();
    const after = await place.meter();
    const less = (name: "read" | "sent"): number | null => (after[name] === null ? null : after[name] - before[name]!);
    return {
      trips: calls.trips - from.trips,
      empty: calls.empty - from.empty,
      emptyTrips: calls.emptyTrips - from.emptyTrips,
      read: less("read"),
      sent: less("sent"),
    };
  };
  const idle = async (): Promise<{ trips: number; read: number | null; claims: number }> => {
    const began = performance.now();
    const { empty, emptyTrips, read } = await between(async () => {
      const until = calls.empty + idleClaims;
      await expect.poll(() => calls.empty >= until, { timeout: 60_000, interval: 5 }).toBe(true);
    });
    const claims = empty / ((performance.now() - began) / 1_000);
    return { trips: emptyTrips / empty, read: read === null ? null : read / empty, claims };
  };
  let batch = 0;
  /** The least of some: a claim may come between, and take only a part of them. */
  const good = async (): Promise<{ trips: number; read: number | null }> => {
    const found: { readonly trips: number; readonly read: number | null }[] = [];
    for (let round = 0; round < 3; round++) {
      batch += 1;
      const values = Array.from({ length: goods }, (_, n) => `('Good', 'good-${batch}-${n}', 'Placed', '{}')`);
      const statement = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ${values.join(", ")}`;
      const until = calls.settled + goods;
      found.push(
        await between(async () => {
          await place.write([statement]);
          await expect.poll(() => calls.settled >= until && calls.open === 0, { timeout: 60_000, interval: 5 }).toBe(true);
        }),
      );
    }
    const least = (of: (one: { trips: number; read: number | null }) => number): number => Math.min(...found.map(of));
    return { trips: least(({ trips: n }) => n), read: found[0]!.read === null ? null : least(({ read }) => read!) };
  };
  const change = (before: { trips: number; read: number | null }, after: { trips: number; read: number | null }): Change => ({
    trips: [before.trips, after.trips],
    read: before.read === null ? null : [before.read, after.read!],
  });
  try {
    await quiet();
    await good(); // plans are made, modules are loaded, floors are known
    const [goodBefore, idleBefore] = [await good(), await idle()];
    const heap = await heapNow();
    [told, published] = [0, 0];
    const settledBefore = calls.settled;
    if (row.watched === true) lookAgainAt = settledBefore + row.count / looks;
    const dealing = await between(async () => {
      const written = row.write(sql, row.count, (statements) => place.write(statements));
      if (row.refused === true) await expect(written, "the table takes them").rejects.toThrow();
      else await written;
      calls.emptyInARow = 0;
      await quiet();
      if (row.delayed === true) {
        await expect.poll(() => calls.settled - settledBefore, { timeout: 240_000 }).toBe(row.count);
        calls.emptyInARow = 0;
        await quiet();
      }
    });
    const perThousand = (n: number): number => (n * 1_000) / row.count;
    const price = {
      trips: perThousand(dealing.trips),
      read: dealing.read === null ? null : dealing.read / row.count,
      sent: dealing.sent === null ? null : dealing.sent / 1_024 / row.count,
      told: perThousand(told),
      published: perThousand(published),
    };
    // The first claims afterwards may still find entries of an index that nobody needs.
    await idle();
    const [idleAfter, goodAfter] = [await idle(), await good()];
    const all: Price = {
      ...price,
      heap: ((await heapNow()) - heap) / 1_024,
      peak: row.watched === true ? (peak - heap) / 1_024 : null,
      attempts: (await place.attempts()) / row.count,
      records: await place.records(),
      idle: change(idleBefore, idleAfter),
      claims: idleAfter.claims,
      good: change(goodBefore, goodAfter),
    };
    if (row.invented === true) {
      world.away = "Good";
      const until = calls.settled + 1;
      await place.write(["INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Good', 'away', 'Placed', '{}')"]);
      const own = { message: "a topic that exists has a record of its own", timeout: 60_000 };
      await expect.poll(() => [...opened], own).toContain("good.events");
      world.away = "";
      await expect.poll(() => calls.settled, { timeout: 60_000 }).toBeGreaterThanOrEqual(until + 1);
      await relay.stop();
      world.complete = true;
      relay = createRelay({ store, sink, housekeeping: false, observe });
      await relay.start();
      const found = { message: "the next relay finds what waits beyond the records", timeout: 60_000 };
      await expect.poll(() => flowed, found).toBeGreaterThan(2 * topicRecords);
      await relay.drain();
    }
    return all;
  } finally {
    await relay.stop();
    await expect.poll(() => calls.open, { timeout: 60_000 }).toBe(0);
  }
}
