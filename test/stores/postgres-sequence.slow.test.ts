import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { Claim, Holding } from "../../src/contracts/outbox-store.ts";
import { postgres, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

await describeWith("postgres", "a sequence that is set back while relays run, on PostgreSQL", () => {
  let server: Postgres;
  let h: PostgresHarness;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());
  beforeEach(async () => {
    h = await harnessOn(() => server.url())();
  });
  afterEach(() => h.close());

  const add = (aggregates: readonly string[]): Promise<unknown> =>
    h.pool.query(
      `INSERT INTO ${h.schema}.outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', a, 'E', '1' FROM unnest($1::text[]) WITH ORDINALITY u (a, n) ORDER BY n`,
      [aggregates],
    );
  const of = (aggregate: string, events: number): readonly string[] => Array.from({ length: events }, () => aggregate);
  const drain = async (store: PostgresStore, holding: Holding): Promise<readonly Claim[]> => {
    const taken: Claim[] = [];
    for (;;) {
      const { id, claims, more } = await store.outbox.claim(holding, { limit: 100, open: [], narrow: false });
      if (id === null && !more) return taken;
      taken.push(...claims);
      if (id !== null)
        await store.outbox.settle(
          holding.relay,
          id,
          claims.map((claim) => ({ claim, as: "published" })),
        );
    }
  };
  const seqs = (claims: readonly Claim[]): readonly number[] => claims.map(({ envelope }) => Number(envelope.seq));
  const upTo = (last: number): readonly number[] => Array.from({ length: last }, (_, at) => at + 1);
  const setBack = async (how: string): Promise<unknown> =>
    h.pool.query(`${how} ${h.schema}.outbox; SELECT setval('${h.schema}.waybill_seq', 1, false)`);

  test.each([
    ["past its old place", "DELETE FROM", 14],
    ["past its old place, behind TRUNCATE", "TRUNCATE", 14],
    ["to its old place again", "DELETE FROM", 10],
    ["short of its old place", "DELETE FROM", 6],
  ])("%s between two claims: the events go at once, in their order", async (_, how, again) => {
    const store = postgres({ pool: h.pool, schema: h.schema });
    await store.leases.renew("r", 60_000);
    const holding: Holding = { relay: "r", lanes: await store.leases.take("r", [...Array(64).keys()]) };
    await add(of("a", 10));
    expect(seqs(await drain(store, holding))).toEqual(upTo(10));
    await drain(store, holding); // its floor moves up
    await setBack(how);
    await add(of("a", again));
    expect(seqs(await drain(store, holding))).toEqual(upTo(again));
  });

  test("another relay, whose own events kept their numbers, begins at the start again", async () => {
    const [one, two] = [postgres({ pool: h.pool, schema: h.schema }), postgres({ pool: h.pool, schema: h.schema })];
    await one.leases.renew("one", 60_000);
    await two.leases.renew("two", 60_000);
    const { rows } = await h.pool.query<{ a: number }>(`SELECT ${h.schema}.waybill_lane('Order', 'a')::int AS a`);
    const lanes = [...Array(64).keys()];
    const [first, second]: [Holding, Holding] = [
      { relay: "one", lanes: await one.leases.take("one", [rows[0]!.a]) },
      {
        relay: "two",
        lanes: await two.leases.take(
          "two",
          lanes.filter((lane) => lane !== rows[0]!.a),
        ),
      },
    ];
    const other = "b";
    await add([...of("a", 2), ...of(other, 8)]);
    expect(seqs(await drain(one, first))).toHaveLength(2);
    expect(seqs(await drain(two, second))).toHaveLength(8);
    await drain(one, first);
    await drain(two, second);
    await h.pool.query(`DELETE FROM ${h.schema}.outbox WHERE seq > 3; SELECT setval('${h.schema}.waybill_seq', 3, true)`);
    await add([...of("a", 4), ...of(other, 6)]);
    expect(seqs(await drain(two, second))).toHaveLength(6);
    expect(seqs(await drain(one, first))).toEqual([4, 5, 6, 7]);
  });
});
