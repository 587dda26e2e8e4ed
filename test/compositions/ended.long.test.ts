import { afterAll, beforeAll, describe } from "vitest";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startMysql } from "../servers/mysql.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import type { Server } from "../servers/server.ts";
import { harmsItselfOnly, onServers } from "./ended.ts";
import { mariadbGround } from "./mysql-ground.ts";
import { postgresGround } from "./postgres-ground.ts";
import { mariadbWays, nameOf, postgresWays } from "./ways.ts";

const title = "a handler in a batch that ends its transaction harms its own event only";

await describeWith("postgres", `${title}, every way to PostgreSQL`, () => {
  let server: Postgres;
  beforeAll(async () => void (server = await startPostgres({ version: 15 })));
  afterAll(() => server[Symbol.asyncDispose]());
  for (const way of postgresWays) {
    // postgres.js answers no statement after one that has ended the transaction: the event hangs, alone or in a batch.
    const answers = ({ sql }: { readonly sql: string }): boolean =>
      !nameOf(way).includes("postgres.js") || !/^(COMMIT|ROLLBACK)$/.test(sql);
    describe(nameOf(way), () => harmsItselfOnly(() => postgresGround(server.url(), way), onServers.filter(answers)));
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
    for (const way of mariadbWays)
      describe(nameOf(way), () => harmsItselfOnly(() => mariadbGround((named) => server.url(named), way), onServers));
  });
