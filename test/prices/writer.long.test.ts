import { describe } from "vitest";
import { describeWith } from "../servers/available.ts";
import { mariadbDatabase, postgresDatabase, sqliteDatabase } from "./places.ts";
import { writerPrices } from "./suite.ts";
import { writerRows } from "./writer-rows.ts";

/** Those that leave something behind, in their full number, and those that the slow tests leave out. */
const rows = writerRows.filter(({ name }) => !/behind one|16 KiB|same moment|for never|payloads of 2/.test(name));
const title = "what many of a writer's rows cost a relay and its database, on";

describe(`${title} SQLite`, () => writerPrices("sqlite", sqliteDatabase, 1, rows));
await describeWith("postgres", `${title} PostgreSQL`, () => writerPrices("postgres", postgresDatabase, 1, rows));
await describeWith("mariadb", `${title} MariaDB`, () => writerPrices("mariadb", mariadbDatabase, 1, rows));
