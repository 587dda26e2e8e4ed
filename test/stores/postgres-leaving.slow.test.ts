import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { postgres } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn } from "./postgres-harness.ts";

await describeWith("postgres", "a relay that leaves PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  test("gives its lanes and windows back in one round trip, whatever its name is, and leaves those of others", async () => {
    const harness = await harnessOn(() => server.url())();
    const { schema } = harness;
    const pool = new pg.Pool({ connectionString: server.url(), max: 2 });
    let statements = 0;
    pool.on("connect", (client) => {
      const query = client.query.bind(client) as (...given: unknown[]) => unknown;
      client.query = ((...given: unknown[]) => {
        statements += 1;
        return query(...given);
      }) as typeof client.query;
    });
    await using store = postgres({ pool, schema });
    const [leaving, staying] = ["it's \\ leaving", "staying"];
    for (const relay of [leaving, staying]) await store.leases.renew(relay, 60_000);
    const lanes = await store.leases.take(leaving, [...Array(32).keys()]);
    const others = await store.leases.take(staying, [...Array(64).keys()]);
    await pool.query(
      `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', i::text, 'E', '1' FROM generate_series(1, 500) i`,
    );
    const request = { limit: 100, open: [], narrow: false };
    expect((await store.outbox.claim({ relay: leaving, lanes }, request)).claims).toHaveLength(100);
    expect((await store.outbox.claim({ relay: staying, lanes: others }, request)).claims).toHaveLength(100);
    statements = 0;
    await store.leases.leave(leaving);
    expect(statements).toBe(1);
    const { lanes: table, live } = await store.leases.look();
    expect(live).toEqual([staying]);
    expect(table.filter(({ owner }) => owner === null).map(({ lane }) => lane)).toEqual([...lanes.keys()]);
    const { rows } = await pool.query<{ relay: string }>(`SELECT relay FROM ${schema}.waybill_windows`);
    expect(rows.map(({ relay }) => relay)).toEqual([staying]);
    await pool.end();
    await harness.close();
  });
});
