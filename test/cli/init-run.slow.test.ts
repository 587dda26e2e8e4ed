import { join } from "node:path";
import { createPool } from "mysql2/promise";
import pg from "pg";
import { afterAll, beforeAll, describe, test } from "vitest";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { describeWith, type ServerName } from "../servers/available.ts";
import { startKafka } from "../servers/kafka.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startNats } from "../servers/nats.ts";
import { startPostgres } from "../servers/postgres.ts";
import { startRabbitmq } from "../servers/rabbitmq.ts";
import { startRedis } from "../servers/redis.ts";
import type { Server } from "../servers/server.ts";
import { followInit } from "./init-run.ts";

const sql = "SELECT (SELECT count(*) FROM orders) AS orders, (SELECT count(*) FROM parcels) AS parcels";
interface Counts {
  readonly orders: number;
  readonly parcels: number;
}
const numbers = (row: object): Counts => {
  const { orders, parcels } = row as Record<string, unknown>;
  return { orders: Number(orders), parcels: Number(parcels) };
};

describe("what waybill init writes for SQLite and the embedded broker", () => {
  test("takes orders to their parcels, over a kill of each process", () =>
    followInit({
      store: "sqlite",
      broker: "embedded",
      kills: true,
      async counts(folder) {
        const db = (await defaultDriver())(join(folder, "shop.db"));
        try {
          db.exec("PRAGMA busy_timeout = 5000");
          return numbers(db.prepare(sql).all()[0] as object);
        } finally {
          db.close();
        }
      },
    }));
});

const brokers = [
  ["nats", "drizzle", startNats],
  ["redis", "kysely", startRedis],
  ["rabbitmq", "knex", startRabbitmq],
  ["kafka", "pg", startKafka],
] as const satisfies readonly (readonly [ServerName, string, () => Promise<Server>])[];

for (const [broker, handle, start] of brokers)
  await describeWith(["postgres", broker], `what waybill init writes for PostgreSQL and ${broker}`, () => {
    let servers: readonly Server[] = [];
    beforeAll(async () => void (servers = await Promise.all([startPostgres({ version: 15 }), start()])));
    afterAll(async () => void (await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()))));

    test(`takes orders to their parcels with ${handle}`, async () => {
      const [database, queue] = servers.map((server) => server.url());
      const pool = new pg.Pool({ connectionString: database });
      try {
        await followInit({
          ...{ store: "postgres", broker, handle },
          ...(broker === "nats" ? { kills: true } : {}),
          env: { DATABASE_URL: database!, BROKER_URL: queue! },
          counts: async () => numbers((await pool.query(sql)).rows[0] as object),
        });
      } finally {
        await pool.end();
      }
    });
  });

await describeWith("postgres", "what waybill init writes for PostgreSQL and the embedded broker", () => {
  test.each(["typeorm", "prisma"])("takes orders to their parcels with %s", async (handle) => {
    await using server = await startPostgres({ version: 15 });
    const pool = new pg.Pool({ connectionString: server.url() });
    try {
      await followInit({
        ...{ store: "postgres", broker: "embedded", handle },
        env: { DATABASE_URL: server.url() },
        counts: async () => numbers((await pool.query(sql)).rows[0] as object),
      });
    } finally {
      await pool.end();
    }
  });
});

await describeWith("mariadb", "what waybill init writes for MariaDB and the embedded broker", () => {
  let server: Server;
  beforeAll(async () => void (server = await startMariadb()));
  afterAll(() => server[Symbol.asyncDispose]());

  test.each(["mysql2", "drizzle", "kysely", "knex", "typeorm"])("takes orders to their parcels with %s", async (handle) => {
    const pool = createPool(server.url());
    try {
      await pool.query(`CREATE DATABASE init_${handle}`);
      const url = server.url(`init_${handle}`);
      const own = createPool(url);
      try {
        await followInit({
          ...{ store: "mysql", broker: "embedded", handle },
          env: { DATABASE_URL: url },
          counts: async () => numbers(((await own.query(sql))[0] as object[])[0]!),
        });
      } finally {
        await own.end();
      }
    } finally {
      await pool.end();
    }
  });
});
