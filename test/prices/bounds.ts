import { expect } from "vitest";
import type { KeyPrice } from "./keys-scene.ts";
import type { PublisherMessages } from "./messages.ts";
import type { MessagePrice } from "./publisher-scene.ts";
import { topicRecords } from "./records.ts";
import type { Price } from "./scene.ts";
import type { WriterRow } from "./writer-rows.ts";

/** The payloads of three windows of 8 MiB each, and copies of them. */
const mostWhileAtWork = 56 * 1_024;

/** Messages to the database for each thousand rows, and how many more 100 good events need beside them. SQLite gets a statement for each row, in the process: it has no hash function for lanes. */
const mostTrips = {
  postgres: { ordinary: 60, large: 3_000, beside: 12 },
  mariadb: { ordinary: 150, large: 5_000, beside: 12 },
  sqlite: { ordinary: 2_500, large: 20_000, beside: 40 },
} as const;
export type DatabaseName = keyof typeof mostTrips;

/** For what a relay asks and tells besides, however few rows there are. */
const beside = { trips: 100, read: 10_000, kib: 256, told: 150 };

/** What each of the rows may cost at most. Nothing here grows with their number. */
export function expectBounded(name: DatabaseName, { count, bytes = 0, invented, waits, keyed, large }: WriterRow, price: Price): void {
  const told = JSON.stringify(price);
  const most = (of: number, bound: number, what: string): void => expect(of, `${what}: ${told}`).toBeLessThanOrEqual(bound);
  const perThousand = (constant: number): number => (constant * 1_000) / count;
  most(price.trips, mostTrips[name][large === true ? "large" : "ordinary"] + perThousand(beside.trips), "messages to the database");
  most(price.read ?? 0, 100 + beside.read / count, "rows that the server reads");
  most(price.sent ?? 0, 1 + 1.1 * (bytes / 1_024) + beside.kib / count, "KiB that the server sends");
  most(price.told, 1_000 + perThousand(beside.told), "path events");
  most(price.published, 1_000, "messages to the broker");
  most(price.heap, 4_096, "KiB that the relay keeps");
  most(price.peak ?? 0, mostWhileAtWork, "KiB that the relay has meanwhile");
  most(price.attempts, invented === true ? 0 : 1, "attempts");

  const { holds = 0, destinations = 0, keys = 0, ...others } = price.records;
  expect(others, `what only events under way have: ${told}`).toEqual({});
  most(holds, waits === true ? count : 1, "holds");
  most(destinations, topicRecords, "records of topics");
  most(keys, keyed === true ? count : 0, "keys");

  const { idle, good } = price;
  most(price.claims, 15, "claims a second that find nothing"); // the relay polls ten times a second
  most(idle.trips[1], idle.trips[0] + 3, "messages of a claim that finds nothing");
  most(good.trips[1], good.trips[0] + mostTrips[name].beside, "messages for 100 events beside them");
  if (idle.read !== null) most(idle.read[1], idle.read[0] + 4 * topicRecords, "rows that a claim reads which finds nothing");
  if (good.read !== null) most(good.read[1], good.read[0] + 1_500, "rows read for 100 events beside them");
}

/** What two transactions with one idempotency key may cost together, at most. */
export function expectKeysBounded(name: "postgres" | "mariadb", price: KeyPrice): void {
  const told = JSON.stringify(price);
  const most = (of: number, bound: number, what: string): void => expect(of, `${what}: ${told}`).toBeLessThanOrEqual(bound);
  most(price.trips, name === "postgres" ? 6 : 12, "messages to the database");
  most(price.read, 100, "rows that the server reads");
  most(price.sent, 2, "KiB that the server sends");
  most(price.wakes, 3, "wake-ups of the relay");
  most(price.idle, 0.1, "messages to the database afterwards");
  expect(price.events, told).toBe(1);
  expect(price.records, told).toEqual({ keys: 1 });
}

/** How often a subscriber of the price list tries. */
export const attempts = 3;

/** What each message may cost a subscriber at most. */
export function expectMessagesBounded({ count, letters, marks }: PublisherMessages, price: MessagePrice): void {
  const told = JSON.stringify(price);
  const most = (of: number, bound: number, what: string): void => expect(of, `${what}: ${told}`).toBeLessThanOrEqual(bound);
  const tried = letters === "after attempts" ? attempts : 1;
  most(price.trips, 4 + (tried > 1 ? 5 * tried : 0) + 50 / count, "messages to the database");
  most(price.read, 250, "rows that the server reads");
  most(price.sent, 1 + (tried > 1 ? tried : 0) + 64 / count, "KiB that the server sends");
  most(price.connections, (tried > 1 ? tried : 0) + 30 / count, "connections to the database");
  most(price.told, tried + 20 / count, "path events");
  most(price.heap, 4_096, "KiB that the subscriber keeps");
  expect(price.records, told).toEqual({ inbox: marks(count), ...(letters === undefined ? {} : { letters: count }) });
  expect(price.left ?? 0, told).toBe(0); // null on Kafka, which is not asked
  most(price.idle[1], price.idle[0] + 4, "messages to the database in a second with nothing to do");
  most(price.good.trips[1], price.good.trips[0] + 0.5, "messages to the database for a good message");
  most(price.good.read[1], price.good.read[0] + 5, "rows read for a good message");
}
