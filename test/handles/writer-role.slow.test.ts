import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fromDrizzle } from "../../src/outbox/handles/index.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { createRoles } from "../housekeeping/postgres-tools.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn, type PostgresHarness } from "../stores/postgres-harness.ts";
import { draft } from "../support/outbox.ts";
import { refused } from "./body.ts";

await describeWith("postgres", "a role that may only insert, in a library's transactions", () => {
  let server: Postgres;
  let harness: PostgresHarness;
  let pool: pg.Pool;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
    harness = await harnessOn(() => server.url())();
    await createRoles(harness.pool);
    await harness.pool.query(harness.store.schema.grants());
    await harness.pool.query("GRANT CREATE ON SCHEMA public TO waybill_writer");
    pool = new pg.Pool({ connectionString: server.url(), options: "-c role=waybill_writer", max: 2 });
  });
  afterAll(async () => {
    await pool.end();
    await harness.close();
    await server[Symbol.asyncDispose]();
  });

  test("hears that outbox.transaction committed, and that it did not", async () => {
    const outbox = createOutbox({ store: postgres({ pool, schema: harness.schema }), tx: fromDrizzle });
    const db = drizzle(pool);
    const event = draft("writer", 1);
    await outbox.transaction(db, (_tx, events) => events.add(event));
    await expect(pool.query(`SELECT 1 FROM ${harness.schema}.outbox`)).rejects.toThrow(/permission denied/);
    expect((await harness.store.operator.list({ limit: 10 })).map(({ id }) => id)).toEqual([event.id]);

    // A deferred constraint's failure is an error of COMMIT itself.
    const refusing = outbox.transaction(db, async (tx, events) => {
      await tx.execute(sql`CREATE TABLE parents (id int PRIMARY KEY)`);
      await tx.execute(sql`CREATE TABLE children (id int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)`);
      await tx.execute(sql`INSERT INTO children VALUES (1)`);
      events.add(draft("writer", 2));
    });
    await expect(refusing).rejects.toThrow();
    await expect(refusing).rejects.not.toThrow(refused("COMMIT_UNKNOWN"));
    expect(await harness.store.operator.list({ limit: 10 })).toHaveLength(1);
  });
});
