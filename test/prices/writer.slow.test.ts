import { describe } from "vitest";
import { describeWith } from "../servers/available.ts";
import { mariadbDatabase, postgresDatabase, sqliteDatabase } from "./places.ts";
import { writerPrices } from "./suite.ts";
import { writerRows } from "./writer-rows.ts";

/** The others are in the long tests. */
const some = writerRows.filter(({ name }) => /types that nobody|refused for good|16 KiB|same moment|for never|payloads of 2/.test(name));
const title = "what a writer's rows cost a relay and its database";

describe(`${title}, on SQLite`, () => writerPrices("sqlite", sqliteDatabase, 10, some));
await describeWith("postgres", `${title}, on PostgreSQL`, () => writerPrices("postgres", postgresDatabase, 5, some));
await describeWith("mariadb", `${title}, on MariaDB`, () => writerPrices("mariadb", mariadbDatabase, 10, some));
