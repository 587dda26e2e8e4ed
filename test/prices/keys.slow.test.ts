import { afterAll, beforeAll, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { expectKeysBounded } from "./bounds.ts";
import { priceOfKeys } from "./keys-scene.ts";
import { type Database, mariadbDatabase, postgresDatabase } from "./places.ts";
import { told } from "./suite.ts";

// SQLite has one writer at a time: the second one begins when the first has ended.
for (const [name, open] of [
  ["postgres", postgresDatabase],
  ["mariadb", mariadbDatabase],
] as const)
  await describeWith(name, `what one idempotency key costs that two writers write at once, on ${name}`, () => {
    let database: Database;
    beforeAll(async () => {
      database = await open();
    });
    afterAll(() => database[Symbol.asyncDispose]());
    test.each([
      ["commits", true],
      ["rolls back", false],
    ] as const)("the first one %s", async (_, commits) => {
      const price = await priceOfKeys(database, commits);
      console.log(`${name}, the first one ${commits ? "commits" : "rolls back"}: ${told(price)}`);
      expectKeysBounded(name, price);
    });
  });
