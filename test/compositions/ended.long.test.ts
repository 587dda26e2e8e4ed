import { afterAll, beforeAll, describe } from "vitest";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startMysql } from "../servers/mysql.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import type { Server } from "../servers/server.ts";
import { harmsItselfOnly, onServers, repeatsNothing } from "./ended.ts";
import { mariadbGround } from "./mysql-ground.ts";
import { postgresGround } from "./postgres-ground.ts";
import { mariadbWays, nameOf, postgresWays } from "./ways.ts";

const repeats = "a handler that ends its transaction repeats no effect";
const title = "a handler in a batch that ends its transaction harms its own event only";

await describeWith("postgres", `${title}, every way to PostgreSQL`, () => {
  let server: Postgres;
  beforeAll(async () => void (server = await startPostgres({ version: 15 })));
  afterAll(() => server[Symbol.asyncDispose]());
  for (const way of postgresWays) {
    const prepare = () => postgresGround(server.url(), way);
    describe(nameOf(way), () => harmsItselfOnly(prepare, onServers));
    // Their handles refuse what comes behind a ROLLBACK.
    const refuses = ["{ url }", "{ pool }", "pg", "Drizzle (node-postgres)"].includes(nameOf(way));
    if (!refuses) describe(`${nameOf(way)}, ${repeats}`, () => repeatsNothing(prepare));
  }
});

for (const [name, database, start] of [
  ["mariadb", "MariaDB", startMariadb],
  ["mysql", "MySQL", startMysql],
] as const)
  await describeWith(name, `${title}, every way to ${database}`, () => {
    let server: Server;
    beforeAll(async () => void (server = await start()));
    afterAll(() => server[Symbol.asyncDispose]());
    for (const way of mariadbWays) {
      const prepare = () => mariadbGround((named) => server.url(named), way);
      describe(nameOf(way), () => harmsItselfOnly(prepare, onServers));
      if (!nameOf(way).startsWith("{")) describe(`${nameOf(way)}, ${repeats}`, () => repeatsNothing(prepare));
    }
  });
