import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn } from "./postgres-harness.ts";

await describeWith("postgres", "status on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  describe.each([
    ["one table", {}],
    ["partitions", { partitions: "day" } as const],
  ])("%s", (_, more) => {
    test("is exact up to 100,000 events of a state, and says what it estimates above that", async () => {
      const h = await harnessOn(() => server.url(), more)();
      const { schema, pool } = h;
      const insert = (count: number, status: string, columns: string, values: string): Promise<unknown> =>
        pool.query(
          `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload, status${columns})
           SELECT 'Order', i % 100, 'E', '1', '${status}'${values} FROM generate_series(1, ${count}) i`,
        );
      await insert(100_000, "PUBLISHED", ", published_at", ", clock_timestamp()");
      await insert(1_000, "PENDING", "", "");
      await insert(500, "PENDING", ", available_at", ", now() + interval '1 day'");
      await insert(70, "DEAD", ", last_error", ", 'E' || i % 3");
      await insert(30, "DISCARDED", "", "");
      const exact = await h.store.operator.status();
      expect([exact.states, exact.estimated]).toEqual([
        { PENDING: 1_500, PUBLISHING: 0, PUBLISHED: 100_000, FAILED: 0, BLOCKED: 0, DEAD: 70, DISCARDED: 30 },
        [],
      ]);
      expect(exact.dead.map(({ error, events }) => `${error} ${events}`)).toEqual(["E1 24", "E0 23", "E2 23"]);

      await insert(60_000, "PUBLISHED", ", published_at", ", clock_timestamp()");
      for (const analysed of [false, true]) {
        if (analysed) await pool.query(`ANALYZE ${schema}.outbox`);
        const { states, estimated } = await h.store.operator.status();
        expect(estimated).toEqual(["PUBLISHED"]);
        expect([states.PENDING, states.DEAD]).toEqual([1_500, 70]);
        expect(states.PUBLISHED).toBeGreaterThan(100_000);
        if (analysed) expect(Math.abs(states.PUBLISHED - 160_000)).toBeLessThan(16_000);
      }
      await h.close();
    });
  });
});
