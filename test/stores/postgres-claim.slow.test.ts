import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Holding } from "../../src/contracts/outbox-store.ts";
import { postgres, type PgPool } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

const all = [...Array(64).keys()];

/** A pool that tells of each statement before it is sent. */
function steppedPool(pool: pg.Pool, before: (text: string) => Promise<void>): PgPool {
  const stepped = (client: pg.PoolClient): pg.PoolClient =>
    new Proxy(client, {
      get(target, key) {
        const held: unknown = Reflect.get(target, key);
        if (typeof held !== "function") return held;
        if (key !== "query") return held.bind(target) as unknown;
        return async (query: string | { text: string }, ...rest: unknown[]) => {
          await before(typeof query === "string" ? query : query.text);
          return (held as (...args: unknown[]) => unknown).call(target, query, ...rest);
        };
      },
    });
  return { totalCount: 0, end: () => Promise.resolve(), connect: async () => stepped(await pool.connect()) };
}

/** Connections of one's own, which end with the case however it ends. */
async function clients(server: Postgres, count: number): Promise<AsyncDisposable & { readonly each: readonly pg.Client[] }> {
  const each = Array.from({ length: count }, () => new pg.Client({ connectionString: server.url() }));
  for (const client of each) await client.connect();
  return { each, [Symbol.asyncDispose]: async () => void (await Promise.all(each.map((client) => client.end()))) };
}

await describeWith("postgres", "a claim on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());
  const create = harnessOn(() => server.url());

  const own = (name: string, body: (harness: PostgresHarness) => Promise<void>): void => {
    test(name, async () => {
      const harness = await create();
      try {
        await body(harness);
      } finally {
        await harness.close();
      }
    });
  };

  const insert = (schema: string, aggregates: readonly string[]): string =>
    `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ${aggregates.map((id) => `('Order', '${id}', 'E', '1')`).join(", ")}`;

  /** Aggregates of one lane. */
  async function neighbours({ pool, schema }: PostgresHarness, count: number): Promise<string[]> {
    const { rows } = await pool.query<{ id: string }>(
      `SELECT 'o-' || i AS id FROM generate_series(1, 10000) i
       WHERE ${schema}.waybill_lane('Order', 'o-' || i) = ${schema}.waybill_lane('Order', 'o-1') LIMIT ${count}`,
    );
    return rows.map(({ id }) => id);
  }

  async function claimed(store: ReturnType<typeof postgres>, holding: Holding): Promise<string[]> {
    const { claims, id } = await store.outbox.claim(holding, { limit: 100, open: [], narrow: false });
    if (id !== null)
      await store.outbox.settle(
        holding.relay,
        id,
        claims.map((claim) => ({ claim, as: "published" })),
      );
    return claims.map(({ envelope }) => `${envelope.aggregateId}:${envelope.seq}`);
  }

  own("in several statements takes no event past one of its aggregate that committed in between", async (h) => {
    const [a, ...others] = await neighbours(h, 30);
    await using writers = await clients(server, 2);
    const [first, second] = writers.each as [pg.Client, pg.Client];
    await h.pool.query(`CREATE TABLE ${h.schema}.accounts (id text PRIMARY KEY, n int NOT NULL)`);
    await h.pool.query(`INSERT INTO ${h.schema}.accounts VALUES ('${a!}', 0)`);
    const raise = `UPDATE ${h.schema}.accounts SET n = n + 1`;

    let scans = 0;
    const store = postgres({
      schema: h.schema,
      pool: steppedPool(h.pool, async (text) => {
        if (!text.includes("pg_snapshot_xmin(") || ++scans !== 2) return;
        // The first statement has filled the lane's share. Now the aggregate's first transaction commits, and its second one follows.
        await first.query("COMMIT");
        await second.query(raise);
        await second.query(insert(h.schema, [a!]));
        await second.query("COMMIT");
      }),
    });
    await store.leases.renew("r", 60_000);
    const holding = { relay: "r", lanes: await store.leases.take("r", all) };

    await first.query("BEGIN");
    await first.query(raise);
    await first.query(insert(h.schema, [a!])); // seq 1
    await h.pool.query(insert(h.schema, others)); // 2 to 30
    await second.query("BEGIN");
    const order = [...(await claimed(store, holding)), ...(await claimed(store, holding))];
    expect(scans).toBeGreaterThan(1);
    expect(order.filter((event) => event.startsWith(`${a!}:`))).toEqual([`${a!}:1`, `${a!}:31`]);
    expect(order).toHaveLength(31);
  });

  own("in several statements takes no event past one of the same transaction, which committed in between", async (h) => {
    const [a, ...others] = await neighbours(h, 13);
    await using writers = await clients(server, 1);
    const [writer] = writers.each as [pg.Client];
    let scans = 0;
    const store = postgres({
      schema: h.schema,
      pool: steppedPool(h.pool, async (text) => {
        if (text.includes("pg_snapshot_xmin(") && ++scans === 2) await writer.query("COMMIT");
      }),
    });
    await store.leases.renew("r", 60_000);
    const holding = { relay: "r", lanes: await store.leases.take("r", all) };

    await writer.query("BEGIN");
    await writer.query(insert(h.schema, [a!])); // seq 1
    await h.pool.query(insert(h.schema, others)); // 2 to 13
    await writer.query(insert(h.schema, [a!])); // seq 14, drawn before the first statement looks
    const order = [...(await claimed(store, holding)), ...(await claimed(store, holding))];
    expect(scans).toBeGreaterThan(1);
    expect(order.filter((event) => event.startsWith(`${a!}:`))).toEqual([`${a!}:1`, `${a!}:14`]);
    expect(order).toHaveLength(14);
  });

  /** Available since a minute, and an ordinary one that follows it in a transaction of its own. */
  async function addPair({ pool, schema }: PostgresHarness, id: string): Promise<void> {
    await pool.query(
      `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload, available_at) VALUES ('Order', '${id}', 'E', '1', now() - interval '1 minute')`,
    );
    await pool.query(insert(schema, [id]));
  }

  for (const [when, statement, nth] of [
    ["its lanes are locked", "FOR UPDATE", 1],
    ["it looks at what is pending", "pg_snapshot_xmin(", 1],
    ["it looks at what else is pending", "pg_snapshot_xmin(", 2],
  ] as const)
    own(`takes no event past one of its aggregate that was available when it was added, before ${when}`, async (h) => {
      const [a, ...others] = await neighbours(h, nth === 1 ? 4 : 13); // one statement, or two
      let met = -Infinity;
      const store = postgres({
        schema: h.schema,
        pool: steppedPool(h.pool, async (text) => {
          if (text.includes(statement) && ++met === nth) await addPair(h, a!);
        }),
      });
      await store.leases.renew("r", 60_000);
      const holding = { relay: "r", lanes: await store.leases.take("r", all) };
      met = 0;
      await h.pool.query(insert(h.schema, others));
      const order = [...(await claimed(store, holding)), ...(await claimed(store, holding)), ...(await claimed(store, holding))];
      expect(met).toBeGreaterThanOrEqual(nth);
      const [first, second] = [others.length + 1, others.length + 2];
      expect(order.filter((event) => event.startsWith(`${a!}:`))).toEqual([`${a!}:${first}`, `${a!}:${second}`]);
      expect(order).toHaveLength(second);
    });

  own("by a relay 8 ms away, with a backlog and transactions that stay open: each aggregate's events come as 1, 2, 3 …", async (h) => {
    const ids = await neighbours(h, 12);
    const { pool, schema } = h;
    await pool.query(`CREATE TABLE ${schema}.accounts (id text PRIMARY KEY, n int NOT NULL)`);
    await pool.query(`INSERT INTO ${schema}.accounts SELECT id, 0 FROM unnest($1::text[]) id`, [ids]);
    let writing = true;
    const write = async (client: pg.Client): Promise<void> => {
      while (writing) {
        const id = ids[Math.floor(Math.random() * ids.length)]!;
        await client.query("BEGIN");
        await client.query(`UPDATE ${schema}.accounts SET n = n + 1 WHERE id = $1`, [id]);
        await client.query(
          `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', id, 'E', n FROM ${schema}.accounts WHERE id = $1`,
          [id],
        );
        if (Math.random() < 0.2) await sleep(50 + Math.random() * 100);
        await client.query("COMMIT");
      }
    };
    await using writers = await clients(server, 16);
    await using proxy = await startTcpProxy(Number(new URL(server.url()).port));
    for (const direction of ["up", "down"] as const) proxy.fault(direction, { latencyMs: 4 });
    const away = new URL(server.url());
    away.port = String(proxy.port);
    await using store = postgres({ url: away.href, schema });
    await store.leases.renew("r", 60_000);
    const holding = { relay: "r", lanes: await store.leases.take("r", all) };

    const work = Promise.all(writers.each.map(write));
    const arrived = new Map<string, number[]>();
    const ends = Date.now() + 6_000;
    for (let left = true; left || writing;) {
      if (Date.now() > ends && writing) {
        writing = false;
        await work;
      }
      const { claims, id } = await store.outbox.claim(holding, { limit: 500, open: [], narrow: false });
      left = id !== null;
      for (const { envelope } of claims) {
        const { aggregateId, data } = envelope;
        arrived.set(aggregateId, [...(arrived.get(aggregateId) ?? []), Number(Buffer.from(data))]);
      }
      if (id !== null)
        await store.outbox.settle(
          "r",
          id,
          claims.map((claim) => ({ claim, as: "published" })),
        );
    }
    for (const [id, order] of arrived) expect([id, order]).toEqual([id, order.map((_, at) => at + 1)]);
  });
});
