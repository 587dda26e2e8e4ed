import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { aggregates, relaysAtADistance, relaysComeAndGo, restartedUnderLoad, type Bank } from "./order.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

async function bankOn(server: Postgres, { pool, schema, store }: PostgresHarness): Promise<Bank> {
  await pool.query(`CREATE TABLE ${schema}.accounts (id text PRIMARY KEY, n int NOT NULL DEFAULT 0)`);
  await pool.query(`CREATE TABLE ${schema}.elsewhere (at timestamptz)`);
  await pool.query(`INSERT INTO ${schema}.accounts (id) SELECT 'a-' || i FROM generate_series(1, ${aggregates}) i`);
  const outbox = createOutbox({ store });
  return {
    async raise(id, { elsewhere, waitMs, keep }) {
      const client = await pool.connect();
      const broken = (): void => undefined; // the statement that fails tells it
      client.on("error", broken);
      try {
        await client.query("BEGIN");
        if (elsewhere) await client.query(`INSERT INTO ${schema}.elsewhere VALUES (now())`);
        const { rows } = await client.query<{ n: number }>(`UPDATE ${schema}.accounts SET n = n + 1 WHERE id = $1 RETURNING n`, [id]);
        await outbox.add(client, { aggregateType: "Account", aggregateId: id, type: "Raised", payload: { n: rows[0]!.n } });
        await sleep(waitMs);
        await client.query(keep ? "COMMIT" : "ROLLBACK");
      } finally {
        client.off("error", broken);
        client.release();
      }
    },
    async look() {
      const { rows } = await pool.query<{ open: number }>(`SELECT count(*)::int AS open FROM ${schema}.outbox WHERE status <> 'PUBLISHED'`);
      const accounts = await pool.query<{ id: string; n: number }>(`SELECT id, n FROM ${schema}.accounts`);
      return { open: rows[0]!.open, counters: new Map(accounts.rows.map(({ id, n }) => [id, n])) };
    },
    async crowd(accounts, lanes) {
      await pool.query(
        `INSERT INTO ${schema}.accounts (id)
         SELECT 'c-' || i FROM generate_series(1, 10000) i WHERE ${schema}.waybill_lane('Account', 'c-' || i) < $1 LIMIT $2`,
        [lanes, accounts],
      );
      await pool.query(`CREATE PROCEDURE ${schema}.raise_crowd(seconds int) LANGUAGE plpgsql AS $$
        DECLARE ids text[] := ARRAY(SELECT id FROM ${schema}.accounts WHERE id LIKE 'c-%'); account text; raised int;
                ends timestamptz := clock_timestamp() + make_interval(secs => seconds);
        BEGIN
          WHILE clock_timestamp() < ends LOOP
            account := ids[1 + floor(random() * cardinality(ids))];
            UPDATE ${schema}.accounts SET n = n + 1 WHERE id = account RETURNING n INTO raised;
            INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Account', account, 'Raised', json_build_object('n', raised));
            IF random() < 0.25 THEN
              PERFORM pg_sleep(0.01 + random() * 0.02);
              -- Its second event has a number behind those that others have drawn meanwhile.
              UPDATE ${schema}.accounts SET n = n + 1 WHERE id = account RETURNING n INTO raised;
              INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Account', account, 'Raised', json_build_object('n', raised));
              PERFORM pg_sleep(random() * 0.01);
            END IF;
            COMMIT;
            PERFORM pg_sleep(0.005);
          END LOOP;
        END $$`);
    },
    raiseCrowd: (seconds) => pool.query(`CALL ${schema}.raise_crowd(${seconds})`),
    port: server.port,
    store: (port = server.port) =>
      postgres({
        url: server.url().replace(`:${server.port}/`, `:${port}/`),
        schema,
        connections: 4,
        connectTimeoutMs: 2_000,
        statementTimeoutMs: 5_000,
      }),
  };
}

await describeWith("postgres", "order and no loss on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  test("ten writers on hot aggregates and four relays that come and go: every aggregate arrives as 1, 2, 3 …", async () => {
    const harness = await harnessOn(() => server.url())();
    await relaysComeAndGo(await bankOn(server, harness));
    await harness.close();
  });

  test("relays at a distance, lanes with a backlog and transactions that stay open: every aggregate arrives as 1, 2, 3 …", async () => {
    const harness = await harnessOn(() => server.url())();
    await relaysAtADistance(await bankOn(server, harness));
    await harness.close();
  });

  test("the server is restarted at once twenty times under load: the relay lives, nothing is lost or out of order", async () => {
    const own = await startPostgres({ version: 15 });
    const harness = await harnessOn(() => own.url())();
    await restartedUnderLoad(await bankOn(own, harness), () => own.restart("immediate"));
    await harness.close();
    await own[Symbol.asyncDispose]();
  });
});
