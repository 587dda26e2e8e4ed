import { afterAll, beforeAll, describe } from "vitest";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startMysql } from "../servers/mysql.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import type { Server } from "../servers/server.ts";
import type { Ground } from "./ground.ts";
import { ending, keepsGoodBatches, leavesOthersAlone, rests, type Rest } from "./loose.ts";
import { mariadbGround } from "./mysql-ground.ts";
import { postgresGround } from "./postgres-ground.ts";
import { sqliteGround } from "./sqlite-ground.ts";
import { mariadbWays, nameOf, postgresWays } from "./ways.ts";

const all: readonly Rest[] = [...rests, ...ending];
const holds = (prepare: () => Promise<Ground>, makesSavepoints = true): void => {
  keepsGoodBatches(prepare, makesSavepoints);
  leavesOthersAlone(prepare, all);
};
const title = "what a handler in a batch leaves behind harms no other event";

await describeWith("postgres", `${title}, on PostgreSQL`, () => {
  let server: Postgres;
  beforeAll(async () => void (server = await startPostgres({ version: 15 })));
  afterAll(() => server[Symbol.asyncDispose]());
  for (const way of postgresWays) describe(nameOf(way), () => holds(() => postgresGround(server.url(), way)));
});

for (const [name, database, start] of [
  ["mariadb", "MariaDB", startMariadb],
  ["mysql", "MySQL", startMysql],
] as const)
  await describeWith(name, `${title}, on ${database}`, () => {
    let server: Server;
    beforeAll(async () => void (server = await start()));
    afterAll(() => server[Symbol.asyncDispose]());
    for (const way of mariadbWays) {
      const prepare = () => mariadbGround((named) => server.url(named), way);
      describe(nameOf(way), () => holds(prepare, !(name === "mysql" && nameOf(way) === "Prisma"))); // it prepares every statement
    }
  });

await describeWith("mariadb", `${title}, on MariaDB with a binary log`, () => {
  let server: Server;
  beforeAll(async () => void (server = await startMariadb({ settings: { "log-bin": "binlog", "server-id": 1 } })));
  afterAll(() => server[Symbol.asyncDispose]());
  holds(() => mariadbGround((named) => server.url(named), "pool"));
});

describe(`${title}, on SQLite`, () => holds(() => sqliteGround()));
