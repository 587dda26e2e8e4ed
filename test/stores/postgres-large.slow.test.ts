import { afterAll, beforeAll, expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres, type PgClient } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { flowOn, type Flow } from "../support/flow.ts";
import { expectCalledOff } from "./called-off.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

const mebibyte = 1024 * 1024;
const huge = 250 * mebibyte;
const leaseMs = 6_000;

await describeWith("postgres", "one row of 250 MiB by plain SQL on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());
  const create = harnessOn(() => server.url());

  const withHuge = async (maxBytes: number, body: (flow: Flow, state: () => Promise<string[]>) => Promise<void>): Promise<void> => {
    const harness: PostgresHarness = await create();
    const { pool, schema, store } = harness;
    await pool.query(
      `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'huge', 'E', repeat('0123456789', ${huge / 10}))`,
    );
    const add = (aggregateId: string): Promise<unknown> =>
      store.transactor.transaction(harness.db, (tx: PgClient) =>
        createOutbox({ store }).add(tx, { aggregateType: "Order", aggregateId, type: "E", payload: { n: 1 } }),
      );
    const flow = await flowOn(store, maxBytes, add, { leaseMs });
    const state = async (): Promise<string[]> => {
      const { rows } = await pool.query<{ told: string }>(
        `SELECT concat_ws(' ', status, error_code, coalesce(error_detail, last_error)) AS told FROM ${schema}.outbox WHERE aggregate_id = 'huge'`,
      );
      return rows.map(({ told }) => told);
    };
    try {
      await body(flow, state);
    } finally {
      await flow.stop();
      await harness.close();
    }
  };

  test("ends DEAD unread where the sink cannot take it, and other events flow within the lease", () =>
    withHuge(mebibyte, async (flow, state) => {
      await flow.until(async () => (await state())[0]!.startsWith("DEAD"), 20_000);
      expect(await state()).toEqual([
        expect.stringMatching(/^DEAD MESSAGE_TOO_LARGE the message takes 262144\d\d\d bytes, and ordinary takes 1048576$/),
      ]);
      expect(flow.published.has("huge")).toBe(false);
      console.log(`slowest beside it: ${flow.slowestMs()} ms`);
    }));

  test("arrives whole where the sink takes it, and other events flow within the lease", () =>
    withHuge(300 * mebibyte, async (flow, state) => {
      const began = performance.now();
      await flow.until(async () => (await state())[0]!.startsWith("PUBLISHED"), 60_000);
      expect(flow.published.get("huge")).toBe(huge);
      console.log(`published after ${Math.round(performance.now() - began)} ms, slowest beside it: ${flow.slowestMs()} ms`);
    }));

  test("a payload read that is called off ends its connection, and the next one has its own", async () => {
    const harness = await create();
    await harness.pool.query(
      `INSERT INTO ${harness.schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'large', 'E', repeat('x', ${40 * mebibyte}))`,
    );
    await expectCalledOff(harness.store, server.port, (port) => {
      const url = new URL(server.url());
      url.port = String(port);
      return postgres({ url: String(url), schema: harness.schema, connections: 1 });
    });
    await harness.close();
  });
});
