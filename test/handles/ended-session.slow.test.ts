import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fromDrizzle } from "../../src/outbox/handles/index.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn, type PostgresHarness } from "../stores/postgres-harness.ts";

await describeWith("postgres", "a session that the server ends while a handler awaits something else", () => {
  let server: Postgres;
  let harness: PostgresHarness;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
    harness = await harnessOn(() => server.url())();
  });
  afterAll(async () => {
    await harness.close();
    await server[Symbol.asyncDispose]();
  });

  // An error event of a pg client that nobody listens to ends the process, and this test's too.
  test("fails the event and leaves the process alone: Drizzle on a pool without listeners", async () => {
    const clients: pg.PoolClient[] = [];
    const pool = new pg.Pool({ connectionString: server.url(), max: 1 });
    pool.on("error", () => undefined);
    pool.on("connect", (client) => void clients.push(client));
    const { inbox } = postgres({ pool: harness.pool, schema: harness.schema, tx: fromDrizzle, db: drizzle(pool) });
    const key = { consumer: "c", id: "ended" };
    const ended = inbox.once(key, 1, async (tx) => {
      const { rows } = await tx.execute<{ pid: number }>(sql`SELECT pg_backend_pid() AS pid`);
      expect(clients[0]!.listenerCount("error"), "listeners").toBeGreaterThan(0);
      const heard = new Promise((resolve) => clients[0]!.once("end", resolve));
      await harness.pool.query("SELECT pg_terminate_backend($1)", [rows[0]!.pid]);
      await heard;
    });
    await expect(ended).rejects.toThrow();
    for (let n = 0; n < 12; n++) expect(await inbox.once({ ...key, id: `after ${n}` }, 1, async () => undefined)).toBe("done");
    expect(await inbox.once(key, 1, async () => undefined)).toBe("done");
    expect(clients[1]!.listenerCount("error"), "listeners that were left behind").toBe(1); // that of the pool
    await pool.end();
  });
});
