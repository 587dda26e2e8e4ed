import { describe } from "vitest";
import { describeWith } from "../servers/available.ts";
import { mariadbDatabase, postgresDatabase, sqliteDatabase } from "./places.ts";
import { writerPrices } from "./suite.ts";

const title = "what many of a writer's rows cost a relay and its database, on";

describe(`${title} SQLite`, () => writerPrices("sqlite", sqliteDatabase, 1));
await describeWith("postgres", `${title} PostgreSQL`, () => writerPrices("postgres", postgresDatabase, 1));
await describeWith("mariadb", `${title} MariaDB`, () => writerPrices("mariadb", mariadbDatabase, 1));
