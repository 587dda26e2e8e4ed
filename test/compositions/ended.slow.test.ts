import mysql from "mysql2/promise";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startMysql } from "../servers/mysql.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import type { Server } from "../servers/server.ts";
import { applied, bad, count, deeds, harmsItselfOnly, onServers, repeatsNothing } from "./ended.ts";
import { mariadbGround } from "./mysql-ground.ts";
import { postgresGround } from "./postgres-ground.ts";
import { sqliteGround } from "./sqlite-ground.ts";
import { mariadbWays, nameOf, postgresWays } from "./ways.ts";

const title = "a handler in a batch that ends its transaction harms its own event only";
const repeats = "a handler that ends a library's transaction repeats no effect";
const some = onServers.filter(({ sql, swallows }) => swallows !== true && /COMMIT|TRUNCATE/.test(sql));

await describeWith("postgres", `${title}, on PostgreSQL`, () => {
  let server: Postgres;
  beforeAll(async () => void (server = await startPostgres({ version: 15 })));
  afterAll(() => server[Symbol.asyncDispose]());
  for (const way of postgresWays.filter((each) => ["{ pool }", "Drizzle (node-postgres)"].includes(nameOf(each)))) {
    const prepare = () => postgresGround(server.url(), way);
    describe(nameOf(way), () => harmsItselfOnly(prepare, onServers));
    describe(`${nameOf(way)}, a handler of batches`, () => harmsItselfOnly(prepare, some, true));
  }
  for (const way of postgresWays.filter((each) => ["Knex", "postgres.js"].includes(nameOf(each))))
    describe(`${repeats} (${nameOf(way)})`, () => repeatsNothing(() => postgresGround(server.url(), way)));
  // It gives a session that is in no transaction to others, whoever has it.
  const postgresJs = postgresWays.find((each) => nameOf(each) === "postgres.js")!;
  describe("postgres.js", () =>
    harmsItselfOnly(
      () => postgresGround(server.url(), postgresJs),
      deeds.filter(({ sql }) => /^(COMMIT|ROLLBACK)$/.test(sql)),
    ));
});

for (const [name, database, start] of [
  ["mariadb", "MariaDB", startMariadb],
  ["mysql", "MySQL", startMysql],
] as const)
  await describeWith(name, `${title}, on ${database}`, () => {
    let server: Server;
    beforeAll(async () => void (server = await start()));
    afterAll(() => server[Symbol.asyncDispose]());
    const prepare = (way: (typeof mariadbWays)[number]) => () => mariadbGround((named) => server.url(named), way);
    for (const way of mariadbWays.filter((each) => ["Knex", "mysql2"].includes(nameOf(each))))
      describe(`${repeats} (${nameOf(way)})`, () => repeatsNothing(prepare(way)));
    describe("{ pool }", () => harmsItselfOnly(prepare("pool"), onServers));
    describe("{ pool }, a handler of batches", () => harmsItselfOnly(prepare("pool"), some, true));
    const drizzle = name === "mysql" ? undefined : mariadbWays.find((each) => nameOf(each).startsWith("Drizzle"));
    if (drizzle === undefined) return;
    describe(nameOf(drizzle), () => {
      harmsItselfOnly(prepare(drizzle), onServers);
      test("a handler of batches answers for all events that it was given", { timeout: 60_000 }, async () => {
        // It was given 20 events at once, and committed: nobody can tell which of them had their effect.
        const [{ letters, effects }] = await applied(prepare(drizzle), 20, { sql: "TRUNCATE TABLE scratch" }, true);
        expect(letters).toHaveLength(20);
        expect(letters.map(({ id }) => id)).toContain(`e-${bad}`);
        expect(new Set(letters.map(({ errorCode }) => errorCode))).toEqual(new Set(["EFFECT_UNFINISHED"]));
        const given = new Set(letters.map(({ id }) => id.slice(2)));
        const others = Array.from({ length: count }, (_, n) => String(n)).filter((n) => !given.has(n));
        expect(effects.filter((effect) => !given.has(effect.split(" ")[0]!))).toEqual(others.sort());
        expect(new Set(effects).size).toBe(effects.length);
      });
    });
  });

await describeWith("mariadb", `${title}, on MariaDB with a binary log`, () => {
  let server: Server;
  beforeAll(async () => void (server = await startMariadb({ settings: { "log-bin": "binlog", "server-id": 1 } })));
  afterAll(() => server[Symbol.asyncDispose]());
  const prepare = () => mariadbGround((named) => server.url(named), "pool");
  harmsItselfOnly(prepare, some);
  test("no XA transaction is begun, which a crash of the server might leave prepared", async () => {
    await applied(prepare, 20, { sql: "DO 1" });
    const client = await mysql.createConnection(server.url("mysql"));
    const [rows] = await client.query<mysql.RowDataPacket[]>("SHOW GLOBAL STATUS LIKE 'Com_xa_start'");
    await client.end();
    expect(rows[0]!["Value"]).toBe("0");
  });
});

describe(`${title}, on SQLite`, () => harmsItselfOnly(() => sqliteGround(), deeds));
