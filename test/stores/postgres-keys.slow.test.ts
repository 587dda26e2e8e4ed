import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

const draft = (idempotencyKey: string) => ({ aggregateType: "Order", aggregateId: "1", type: "E", payload: 1, idempotencyKey });

await describeWith("postgres", "idempotency keys on PostgreSQL", () => {
  let server: Postgres;
  let h: PostgresHarness;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
    h = await harnessOn(() => server.url())();
  });
  afterAll(async () => {
    await h.close();
    await server[Symbol.asyncDispose]();
  });

  test("an event is called added exactly when it is there, though a purge forgets its key meanwhile", async () => {
    const { pool, schema, store, db } = h;
    const outbox = createOutbox({ store });
    await store.transactor.transaction(db, (tx) => outbox.add(tx, draft("used")));
    // Its second event waits for a key that another transaction has: the function is between its statements.
    const other = await h.begin();
    await outbox.add(other.tx, draft("other"));
    const added = store.transactor.transaction(db, (tx) => outbox.add(tx, [draft("used"), draft("other")]));
    for (let waits = false; !waits;)
      waits = (await pool.query("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")).rows.length > 0;
    await store.operator.purge(new Date(0), { who: "t", dryRun: false }, { keyRetentionMs: 0 });
    await other.rollback();
    const results = await added;
    const { rows } = await pool.query<{ id: string }>(`SELECT id FROM ${schema}.outbox`);
    const there = new Set(rows.map(({ id }) => id));
    expect(results.map(({ id }) => there.has(id))).toEqual([true, true]);
    expect(results.map(({ duplicate }) => duplicate)).toEqual([true, false]);
    expect(rows).toHaveLength(2);
  });

  test("only who may act for the owner can move an event past its key", async () => {
    const { pool, schema } = h;
    await pool.query(
      `CREATE ROLE inserting LOGIN; GRANT USAGE ON SCHEMA ${schema} TO inserting; GRANT USAGE ON SEQUENCE ${schema}.waybill_seq TO inserting;
       GRANT INSERT (aggregate_type, aggregate_id, event_type, payload, idempotency_key) ON ${schema}.outbox TO inserting`,
    );
    const insert = `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('Order', '1', 'E', '1', 'moved')`;
    const as = async (user: string): Promise<number | null> => {
      const client = new pg.Client({ connectionString: server.url().replace("postgres@", `${user}@`) });
      await client.connect();
      await client.query("SET waybill.moving = 'on'");
      const { rowCount } = await client.query(insert);
      await client.end();
      return rowCount;
    };
    await pool.query(insert);
    expect(await as("inserting")).toBe(0);
    expect(await as("postgres")).toBe(1);
  });
});
