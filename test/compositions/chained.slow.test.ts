import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startMysql } from "../servers/mysql.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import type { Server } from "../servers/server.ts";
import type { Ground } from "./ground.ts";
import { mariadbGround } from "./mysql-ground.ts";
import { postgresGround } from "./postgres-ground.ts";
import { sqliteGround } from "./sqlite-ground.ts";
import { subscribed } from "./subscribed.ts";
import { mariadbWays, nameOf, postgresWays } from "./ways.ts";

const count = 40;

/** A handler adds an event in its own transaction: one step of a saga. */
function addsOnce(prepare: () => Promise<Ground>): void {
  test.for([1, 20])("a handler's event is added once with its effect, and the process lives on: batch %i", async (batch) => {
    const uncaught: unknown[] = [];
    const caught = (error: unknown): void => void uncaught.push(error);
    process.on("uncaughtException", caught);
    onTestFinished(() => void process.off("uncaughtException", caught));
    const ground = await prepare();
    onTestFinished(() => ground.close());
    const next = (n: string) => ({ aggregateType: "Parcel", aggregateId: n, type: "ParcelPacked", payload: { n } });
    const { service, settled, events } = await subscribed(
      ground,
      {
        batch,
        handlers: {
          OrderPlaced: async (event, tx) => {
            await ground.run(tx, `INSERT INTO effects (name) VALUES ('${event.aggregateId}')`);
            await ground.outbox.add(tx, next(event.aggregateId));
          },
        },
      },
      count,
    );
    onTestFinished(() => service.stop());
    await expect.poll(settled, { timeout: 20_000, interval: 20 }).toBe(count);
    const expected = Array.from({ length: count }, (_, n) => String(n)).sort();
    const one = async (sql: string): Promise<string[]> => (await ground.read(sql)).map(([value]) => value!).sort();
    expect(await one("SELECT name FROM effects")).toEqual(expected);
    expect(await one("SELECT aggregate_id FROM outbox")).toEqual(expected);
    expect(events.filter(({ type }) => type === "subscriber.died" || type === "subscriber.failed")).toEqual([]);
    await expect.poll(ground.hints, { timeout: 5_000 }).toBeGreaterThan(0);
    await service.drain();
    // A listener that stayed would be called at the next answer, in a transaction that is not its own.
    expect(new Set(ground.listeners?.() ?? [0]).size).toBe(1);
    expect(uncaught).toEqual([]);
  });
}

for (const [title, ways] of [
  ["a handler that adds an event with pg itself", postgresWays.filter((way) => typeof way === "string")],
  ["a handler that adds an event in a library's transaction on PostgreSQL", postgresWays.filter((way) => typeof way !== "string")],
] as const)
  await describeWith("postgres", title, () => {
    let server: Postgres;
    beforeAll(async () => void (server = await startPostgres({ version: 15 })));
    afterAll(() => server[Symbol.asyncDispose]());
    for (const way of ways) describe(nameOf(way), () => addsOnce(() => postgresGround(server.url(), way)));
  });

for (const [name, database, start] of [
  ["mariadb", "MariaDB", startMariadb],
  ["mysql", "MySQL", startMysql],
] as const)
  await describeWith(name, `a handler that adds an event, on ${database}`, () => {
    let server: Server;
    beforeAll(async () => void (server = await start()));
    afterAll(() => server[Symbol.asyncDispose]());
    for (const way of mariadbWays) describe(nameOf(way), () => addsOnce(() => mariadbGround((named) => server.url(named), way)));
  });

describe("a handler that adds an event, on SQLite", () => addsOnce(() => sqliteGround()));
