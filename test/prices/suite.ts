import { afterAll, beforeAll, test } from "vitest";
import { type DatabaseName, expectBounded } from "./bounds.ts";
import type { Database } from "./places.ts";
import { priceOf } from "./scene.ts";
import { writerRows } from "./writer-rows.ts";

export const told = (price: object): string =>
  JSON.stringify(price, (_, value: unknown) => (typeof value === "number" ? Math.round(value * 100) / 100 : value));

/** A test for each kind of rows, with their count divided by `share`. */
export function writerPrices(name: DatabaseName, open: () => Promise<Database>, share: number, wanted = writerRows): void {
  let database: Database;
  beforeAll(async () => {
    database = await open();
  });
  afterAll(() => database[Symbol.asyncDispose]());
  for (const row of wanted) {
    const some = { ...row, count: Math.ceil(row.count / share) };
    test(`${some.count} ${row.name}`, { timeout: 300_000 }, async () => {
      const price = await priceOf(database, some);
      console.log(`${name}, ${some.count} ${row.name}: ${told(price)}`);
      expectBounded(name, some, price);
    });
  }
}
