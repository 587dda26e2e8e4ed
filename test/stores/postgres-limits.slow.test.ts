import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Holding } from "../../src/contracts/outbox-store.ts";
import type { Added } from "../../src/core/event.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres, type PgClient, type PgPool, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

const all = [...Array(64).keys()];

const add = (store: PostgresStore, tx: PgClient, aggregateId: string, count = 1): Promise<readonly Added[]> =>
  createOutbox({ store }).add(
    tx,
    Array.from({ length: count }, (_, n) => ({ aggregateType: "Order", aggregateId, type: "E", payload: { n } })),
  );

async function holdingOf(store: PostgresStore, relay: string): Promise<Holding> {
  await store.leases.renew(relay, 60_000);
  return { relay, lanes: await store.leases.take(relay, all) };
}

/** What was claimed and published, as aggregate and number. */
async function drain({ outbox }: PostgresStore, holding: Holding): Promise<readonly string[]> {
  const claimed: string[] = [];
  for (;;) {
    const window = await outbox.claim(holding, { limit: 100, open: [], narrow: false });
    if (window.id === null && !window.more) return claimed;
    claimed.push(...window.claims.map(({ envelope }) => `${envelope.aggregateId}:${envelope.seq}`));
    if (window.id === null) continue;
    await outbox.settle(
      holding.relay,
      window.id,
      window.claims.map((claim) => ({ claim, as: "published" })),
    );
  }
}

await describeWith("postgres", "limits on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    // A vacuum or an analysis that runs would keep the floors low.
    server = await startPostgres({ version: 15, settings: { autovacuum: "off" } });
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

  own("a claim after all lanes were lost proves nothing of open writers", async (h) => {
    const first = await holdingOf(h.store, "a");
    await h.clock.advance(70_000);
    const other = postgres({ pool: h.pool, schema: h.schema, clock: h.storeClock });
    await other.leases.look(); // it meets the lease as one that has expired, and gives its owner the time to renew
    await h.clock.advance(31_000);
    await holdingOf(other, "b");
    const late = await h.begin();
    await add(h.store, late.tx, "late");
    await h.store.transactor.transaction(h.db, (tx) => add(h.store, tx, "x"));
    expect(await drain(h.store, first)).toEqual([]); // it wakes up, and does not know yet
    await other.leases.leave("b");
    const again = await holdingOf(h.store, "a");
    expect([await drain(h.store, again), await drain(h.store, again)]).toEqual([["x:2"], []]);
    await late.commit();
    await h.store.transactor.transaction(h.db, (tx) => add(h.store, tx, "late"));
    expect(await drain(h.store, again)).toEqual(["late:1", "late:3"]);
  });

  test("a failover between a claim's look and its transaction: no floor of the old server counts on the new one", async () => {
    await using other = await startPostgres({ version: 15 });
    const pools = [server.url(), other.url()].map((connectionString) => new pg.Pool({ connectionString, max: 4 }));
    const [old, young] = pools as [pg.Pool, pg.Pool];
    const [a, b] = [old, young].map((pool) => postgres({ pool, schema: "moved" })) as [PostgresStore, PostgresStore];
    for (const store of [a, b]) await store.schema.migrate();
    let connections = Infinity;
    const moving = { totalCount: 0, end: () => Promise.resolve(), connect: () => (connections-- > 0 ? old : young).connect() };
    const store = postgres({ pool: moving satisfies PgPool, schema: "moved" });
    const holding = await holdingOf(store, "r");
    await holdingOf(b, "r"); // what a standby has of the lanes
    for (let n = 0; n < 20; n++) {
      await a.transactor.transaction(old, (tx) => add(a, tx, `o${n}`));
      await drain(store, holding);
    }
    await a.transactor.transaction(old, (tx) => add(a, tx, "x"));
    // An event that is due makes the relay look closer.
    await old.query("UPDATE moved.outbox SET status = 'FAILED', next_attempt_at = created_at WHERE aggregate_id = 'x'");
    // The new server's numbers stepped back: one event is below the old floor, one above it.
    for (const drawn of [9, 29]) {
      await young.query(`SELECT setval('moved.waybill_seq', ${drawn})`);
      await b.transactor.transaction(young, (tx) => add(b, tx, "y"));
    }
    connections = 2; // the first try and the look meet the old server, the transaction the new one
    expect(await drain(store, holding)).toEqual(["y:10", "y:30"]);
    for (const pool of pools) await pool.end();
  });

  own("floors stay whatever time zones the connections of a pool have", async (h) => {
    const zones = new pg.Pool({ connectionString: server.url(), max: 2, idleTimeoutMillis: 0 });
    let connected = 0;
    zones.on("connect", (client) => void client.query(`SET TIME ZONE '${["UTC", "Asia/Tehran"][connected++ % 2]!}'`));
    const both = [await zones.connect(), await zones.connect()];
    for (const client of both) client.release();
    const store = postgres({ pool: zones, schema: h.schema });
    const holding = await holdingOf(store, "a");
    await h.store.transactor.transaction(h.db, (tx) => add(h.store, tx, "x", 50));
    for (let round = 0; round < 4; round++) await drain(store, holding);
    await h.pool.query(`UPDATE ${h.schema}.outbox SET status = 'PENDING' WHERE seq = 1`);
    expect(await drain(store, holding)).toEqual([]);
    await zones.end();
  });

  own("handlers do not take the connections of seats and leases", async (h) => {
    await using store = postgres({ url: server.url(), schema: h.schema, connections: 2, connectTimeoutMs: 3_000 });
    let end: () => void = () => undefined;
    const busy = new Promise<void>((resolve) => (end = resolve));
    let begun = 0;
    const handlers = ["1", "2"].map((id) =>
      store.inbox.once({ consumer: "c", id }, 1, () => {
        begun += 1;
        return busy;
      }),
    );
    while (begun < 2) await sleep(10);
    expect(await store.inbox.sit({ consumer: "c", topic: "t", owner: "o" }, 5_000)).toBe(true);
    end();
    await Promise.all(handlers);
  });

  own("a pool of the user's without a free client hangs nobody", async (h) => {
    const pool = new pg.Pool({ connectionString: server.url(), max: 1 });
    const store = postgres({ pool, schema: h.schema, statementTimeoutMs: 2_000 });
    const held = await pool.connect();
    await expect(store.leases.renew("a", 1_000)).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringMatching(/raise the pool's max/) as string,
    });
    held.release();
    await store.leases.renew("a", 1_000);
    await pool.end();
  });

  own("a subscriber that is frozen inside its transaction does not keep another one waiting for ever", async (h) => {
    const [a, b] = [1, 2].map(() => postgres({ url: server.url(), schema: h.schema, statementTimeoutMs: 2_000 })) as [
      PostgresStore,
      PostgresStore,
    ];
    let thaw: () => void = () => undefined;
    const frozen = new Promise<void>((resolve) => (thaw = resolve));
    let inside = false;
    const first = a.inbox.once({ consumer: "c", id: "e" }, 1, () => {
      inside = true;
      return frozen;
    });
    while (!inside) await sleep(10);
    await expect(b.inbox.once({ consumer: "c", id: "e" }, 1, () => undefined)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    thaw();
    expect(await first).toBe("done");
    expect(await b.inbox.once({ consumer: "c", id: "e" }, 1, () => undefined)).toBe("seen");
    for (const store of [a, b]) await store[Symbol.asyncDispose]();
  });

  own("an archive may take longer than a transaction may be idle", async (h) => {
    const store = postgres({ pool: h.pool, schema: h.schema, statementTimeoutMs: 1_000 });
    await h.store.transactor.transaction(h.db, (tx) => add(h.store, tx, "x", 3));
    await drain(h.store, await holdingOf(h.store, "a"));
    let given = 0;
    const archive = async (events: readonly unknown[]): Promise<void> => {
      given += events.length;
      await sleep(3_000);
    };
    expect(await store.operator.purge(new Date(Date.now() + 60_000), { who: "t", dryRun: false }, { archive })).toBe(3);
    expect(given).toBe(3);
  });

  own("a serialisation failure of add keeps the code by which users retry", async (h) => {
    const draft = { aggregateType: "Order", aggregateId: "k", type: "E", payload: 1, idempotencyKey: "k" };
    const outbox = createOutbox({ store: h.store });
    const client = await h.pool.connect();
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await client.query(`SELECT count(*) FROM ${h.schema}.effects`);
    await h.store.transactor.transaction(h.db, (tx) => outbox.add(tx, draft));
    await expect(outbox.add(client, draft)).rejects.toMatchObject({ code: "40001" });
    await client.query("ROLLBACK");
    client.release();
  });

  test("mistakes in a URL are said in words, without a part of the password", async () => {
    expect(() => postgres({ url: "postgres://u:p@ss/word@127.0.0.1/db" })).toThrow(/^(?!.*word@).*%40/);
    await using plain = postgres({ url: `${server.url()}?sslmode=require` });
    await expect(plain.schema.check()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(() => postgres({ url: server.url(), names: { outbox: "o$waybill$" } })).toThrow(/outbox must be a name/);
  });
});
