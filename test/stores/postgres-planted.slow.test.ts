import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fromPg } from "../../src/outbox/handles/pg.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres, type PgClient } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { overload, plant } from "./planted.ts";

const all = [...Array(64).keys()];
let databases = 0;

/** On PostgreSQL 14 every role may create functions and operators in public, which is in every session's search path. */
await describeWith("postgres14", "planted functions on PostgreSQL 14", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 14 });
    await query(server.url(), "CREATE ROLE mallory LOGIN");
    expect(await plant(as("mallory", server.url()), postgres({ url: server.url(), partitions: "day" }).schema.print())).toBeGreaterThan(
      8_000,
    );
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const as = (role: string, url: string): string => url.replace("postgres@", `${role}@`);
  let seen = 0;
  /** What ran since it was asked before. */
  const stolen = (): readonly string[] => {
    const lines = [
      ...new Set(
        server
          .log()
          .slice(seen)
          .match(/PLANTED: .*/g),
      ),
    ];
    seen = server.log().length;
    return lines;
  };
  const planted = async (): Promise<string> => {
    const name = `planted_${++databases}`;
    await query(server.url("template1"), `CREATE DATABASE ${name} TEMPLATE postgres`);
    return server.url(name);
  };

  test("a statement that qualifies nothing runs them, with the rights of its caller", async () => {
    await query(server.url(), "SELECT array_position(ARRAY[1]::bigint[], 1::bigint), format('%s', 'pg_class'::regclass, 'x'::name)");
    expect(stolen()).toEqual([
      "PLANTED: array_position(bigint[], bigint) as postgres",
      "PLANTED: format(text, regclass, name) as postgres",
    ]);
  });

  test.each([
    ["one table", {}],
    ["partitions", { partitions: "day" } as const],
  ])("a superuser's migration of %s runs none, and neither does the printed one", async (_, more) => {
    const migrated = postgres({ url: await planted(), ...more });
    stolen();
    await migrated.schema.migrate();
    await migrated.schema.migrate();
    await migrated.schema.check();
    await migrated[Symbol.asyncDispose]();
    expect(stolen()).toEqual([]);
    const url = await planted();
    stolen();
    const printed = postgres({ url, ...more });
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query("BEGIN");
    await client.query(printed.schema.print());
    const { rows } = await client.query("SHOW search_path");
    await client.query("COMMIT");
    await client.end();
    await printed.schema.check();
    await printed[Symbol.asyncDispose]();
    expect(stolen()).toEqual([]);
    expect(rows, "of the tool's own statements behind ours").toEqual([{ search_path: '"$user", public' }]);
  });

  test("neither do writers, relays, subscribers, operators and doctor, each with the rights of its role, through any pool", async () => {
    const url = await planted();
    const { schema } = postgres({ url, partitions: "day" });
    await schema.migrate();
    for (const role of ["writer", "relay", "subscriber", "operator"])
      await query(url, `DO $$ BEGIN CREATE ROLE waybill_${role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`);
    await query(url, schema.grants());
    await overload(as("mallory", url));
    stolen();
    const pools = ["writer", "relay", "subscriber", "operator"].map(
      (role) => new pg.Pool({ connectionString: as(`waybill_${role}`, url), max: 3 }),
    );
    const [writer, relay, subscriber, operator] = pools.map((pool) => postgres({ pool }));
    const outbox = createOutbox({ store: writer! });
    await outbox.transaction(pools[0]!, async (_, events) => {
      events.add({ aggregateType: "Order", aggregateId: "1", type: "E", payload: 1, idempotencyKey: "k" });
      for (let n = 0; n < 20; n++)
        events.add({ aggregateType: "Order", aggregateId: String(n), type: "E", payload: n, headers: { a: "b" } });
    });
    for (let n = 0; n < 4; n++)
      await outbox.transaction(pools[0]!, (tx) => outbox.add(tx, { aggregateType: "Order", aggregateId: `s${n}`, type: "E", payload: n }));
    await relay!.leases.renew("r", 60_000);
    const holding = { relay: "r", lanes: await relay!.leases.take("r", all) };
    for (const as of ["retry", "published", "parked", "published"] as const) {
      const { id, claims } = await relay!.outbox.claim(holding, { limit: 8, open: [], narrow: false });
      if (id === null) continue;
      await relay!.outbox.settle(
        "r",
        id,
        claims.map((claim, at) =>
          as === "published" || at > 0
            ? { claim, as: "published" }
            : as === "retry"
              ? { claim, as, error: "later", afterMs: 0 }
              : { claim, as, error: "no", release: true },
        ),
      );
    }
    await relay!.leases.look();
    await relay!.housekeeping!.watch();
    await relay!.housekeeping!.partitions!.create();
    const library = postgres({ pool: pools[2]!, tx: fromPg, db: pools[2]! });
    for (const { inbox } of [subscriber!, library]) {
      for (const id of ["1", "2"])
        await inbox.once({ consumer: "c", id }, 1, async (tx: PgClient | pg.PoolClient) => {
          const { rows } = await (tx as pg.PoolClient).query("SHOW search_path");
          expect(rows, "of a handler's statements").toEqual([{ search_path: '"$user", public' }]);
        });
      await inbox.failed({ consumer: "c", id: "9" }, "no");
      await inbox.sit({ consumer: "c", topic: "t", owner: "me" }, 1_000);
      await inbox.forget(new Date(), 10);
    }
    await operator!.operator.status();
    await operator!.operator.list({ limit: 10, error: "no" });
    await operator!.operator.redrive({}, { who: "ann", dryRun: false });
    await operator!.operator.purge(new Date(Date.now() + 1_000), { who: "ann", dryRun: false });
    const findings = await operator!.examine!([], new AbortController().signal);
    expect(stolen()).toEqual([]);
    expect(findings.find(({ setting }) => setting === "search_path")).toMatchObject({
      verdict: "bad",
      value: "every role may create in public",
    });
    for (const pool of pools) expect((await pool.query("SHOW search_path")).rows).toEqual([{ search_path: '"$user", public' }]);
    for (const pool of pools) await pool.end();
  });
});

async function query(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}
