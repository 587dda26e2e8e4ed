import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import type { Server } from "../servers/server.ts";
import type { Ground } from "./ground.ts";
import { mariadbGround } from "./mysql-ground.ts";
import { postgresGround } from "./postgres-ground.ts";
import { subscribed } from "./subscribed.ts";

const count = 4_000;
const rows = 10;
const most = 20;

/**
 * Each event's handler updates one of a few rows, as counters and stocks are updated. A batch locks many of them, in the order of its
 * events, so batches that run side by side deadlock. PostgreSQL finds a deadlock after a second, and rolls one of its batches back.
 */
function conflictsSeldom(prepare: () => Promise<Ground>, deadlocks: (ground: Ground) => Promise<number>): void {
  test("batches that update the same rows deadlock once each at most, and no event fails", { timeout: 120_000 }, async () => {
    const ground = await prepare();
    onTestFinished(() => ground.close());
    await ground.read("CREATE TABLE scratch_rows (name varchar(9) PRIMARY KEY, sum integer NOT NULL)").catch(() => undefined);
    for (let row = 0; row < rows; row++) await ground.read(`INSERT INTO scratch_rows VALUES ('${row}', 0)`);
    const before = await deadlocks(ground);
    const { service, settled, events } = await subscribed(
      ground,
      {
        batch: 100,
        handlers: {
          OrderPlaced: async ({ aggregateId }, tx) => {
            const row = ((Number(aggregateId) * 7919) % 101) % rows;
            await ground.run(tx, `UPDATE scratch_rows SET sum = sum + 1 WHERE name = '${row}'`);
          },
        },
      },
      count,
    );
    onTestFinished(() => service.stop());
    // All batches that ran when the first deadlock was found may be in one; afterwards each occasion costs one.
    const found = async (): Promise<number> => (await deadlocks(ground)) - before;
    const state = async (): Promise<number | string> => ((await found()) > most ? `${await found()} deadlocks` : settled());
    await expect
      .poll(async () => typeof (await state()) === "string" || settled() === count, { timeout: 110_000, interval: 50 })
      .toBe(true);
    expect(await state()).toBe(count);
    const [[sum]] = (await ground.read("SELECT sum(sum) AS sum FROM scratch_rows")) as [[string]];
    expect(Number(sum)).toBe(count);
    expect(events.filter(({ type }) => type === "subscriber.failed" || type === "subscriber.died")).toEqual([]);
    expect(events.filter(({ type }) => type === "subscriber.recovered")).not.toEqual([]);
  });
}

await describeWith("postgres", "shared rows in batches, on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => void (server = await startPostgres({ version: 15 })));
  afterAll(() => server[Symbol.asyncDispose]());
  for (const way of ["pool", "url"] as const)
    describe(`{ ${way} }`, () =>
      conflictsSeldom(
        () => postgresGround(server.url(), way),
        async ({ read }) => Number((await read("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))[0]![0]),
      ));
});

await describeWith("mariadb", "shared rows in batches, on MariaDB", () => {
  let server: Server;
  beforeAll(async () => void (server = await startMariadb()));
  afterAll(() => server[Symbol.asyncDispose]());
  describe("{ pool }", () =>
    conflictsSeldom(
      () => mariadbGround((name) => server.url(name), "pool"),
      async ({ read }) => Number((await read("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'"))[0]![1]),
    ));
});
