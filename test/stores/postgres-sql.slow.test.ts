import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres, type PostgresNames } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";

const run = promisify(execFile);
const all = [...Array(64).keys()];
let databases = 0;

await describeWith("postgres", "plain SQL on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  /** A database of its own, as a user would have it. */
  const database = async (): Promise<string> => {
    const name = `db_${++databases}`;
    await query(server.url(), `CREATE DATABASE ${name}`);
    return server.url(name);
  };

  test("the one-liners of the docs add an event and show its state", async () => {
    const url = await database();
    await using store = postgres({ url });
    await store.schema.migrate();
    const page = readFileSync(new URL("../../docs/sql.md", import.meta.url), "utf8");
    const lines = [...page.matchAll(/^psql .*$/gm)].map(([line]) => line);
    expect(lines.length).toBeGreaterThanOrEqual(3);
    const env = { ...process.env, DATABASE_URL: url, PATH: `${join(server.bin)}:${process.env["PATH"] ?? ""}` };
    const answers: string[] = [];
    for (const line of lines) answers.push((await run("sh", ["-c", line], { env })).stdout);
    expect(answers[0]).toContain("INSERT 0 1");
    expect(answers[1]).toMatch(/1 \| order-1 +\| OrderPlaced \| PENDING/);
    expect(answers[2]).toMatch(/PENDING \| +1/);
  });

  test("what is printed makes the same tables, and its grants are enough for each role and no more", async () => {
    const url = await database();
    const { schema } = postgres({ url });
    for (const role of ["writer", "relay", "subscriber", "operator"]) await query(url, `CREATE ROLE waybill_${role} LOGIN`);
    await query(url, schema.print());
    await query(url, schema.grants());
    const as = (role: string): string => url.replace("postgres@", `waybill_${role}@`);
    const [writer, relay, subscriber, operator] = ["writer", "relay", "subscriber", "operator"].map((role) => ({
      pool: new pg.Pool({ connectionString: as(role), max: 3 }),
    }));
    const stores = [writer!, relay!, subscriber!, operator!].map(({ pool }) => postgres({ pool }));
    const [written, relayed, subscribed, operated] = stores;

    const outbox = createOutbox({ store: written! });
    const draft = { aggregateType: "Order", aggregateId: "1", type: "E", payload: 1, idempotencyKey: "k" };
    const [first, second] = await Promise.all([
      outbox.transaction(writer!.pool, (tx) => outbox.add(tx, draft)),
      outbox.transaction(writer!.pool, (tx) => outbox.add(tx, draft)),
    ]);
    expect([first, second].map(({ duplicate }) => duplicate).sort()).toEqual([false, true]);
    expect(first.id).toBe(second.id);
    await writer!.pool.query(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('Order', '1', 'E', '2', 'k'), ('Order', '1', 'E', '3', 'other')",
    );
    for (const refused of [
      "SELECT * FROM outbox",
      "UPDATE outbox SET status = 'PUBLISHED'",
      "SELECT * FROM waybill_keys",
      "INSERT INTO outbox (seq) VALUES (1)",
    ])
      await expect(writer!.pool.query(refused)).rejects.toMatchObject({ code: "42501" });

    await relayed!.schema.check();
    await relayed!.leases.renew("r1", 60_000);
    const holding = { relay: "r1", lanes: await relayed!.leases.take("r1", all) };
    const window = await relayed!.outbox.claim(holding, { limit: 10, open: [], narrow: false });
    expect(window.claims).toHaveLength(2);
    await relayed!.outbox.settle("r1", window.id!, [
      { claim: window.claims[0]!, as: "parked", error: "no", release: false },
      { claim: window.claims[1]!, as: "returned" },
    ]);
    await expect(relay!.pool.query("UPDATE outbox SET payload = 'x'")).rejects.toMatchObject({ code: "42501" });

    expect((await operated!.operator.redrive({}, { who: "ann", dryRun: false })).events).toBe(1);
    const again = await relayed!.outbox.claim(holding, { limit: 10, open: [], narrow: false });
    await relayed!.outbox.settle(
      "r1",
      again.id!,
      again.claims.map((claim) => ({ claim, as: "published" })),
    );
    expect(await operated!.operator.purge(new Date(Date.now() + 1_000), { who: "ann", dryRun: false })).toBeGreaterThan(0);
    expect((await operated!.operator.status()).states.DEAD).toBe(0);
    await relayed!.leases.leave("r1");

    expect(await subscribed!.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("done");
    expect(await subscribed!.inbox.sit({ consumer: "c", topic: "t", owner: "me" }, 1_000)).toBe(true);
    await subscribed!.inbox.leave({ consumer: "c", topic: "t", owner: "me" });
    await expect(subscriber!.pool.query("SELECT * FROM outbox")).rejects.toMatchObject({ code: "42501" });
    for (const { pool } of [writer!, relay!, subscriber!, operator!]) await pool.end();
  });

  test.each([
    ["a quote", 'my"schema', { outbox: `o'ut"box`, prefix: "w'b\"_" }],
    ["dots", "a.b.c", { outbox: "out.box", inbox: "in.box", events: "ev.ents" }],
    ["SQL", 'x"; DROP TABLE t; --', { outbox: "outbox; DELETE FROM t", inbox: "inbox--" }],
    ["capitals and spaces", "My Schema", { outbox: "Out Box", events: "The Events" }],
    ["other letters", "схема", { outbox: "صندوق", prefix: "ウェイ_" }],
    ["as many bytes as PostgreSQL keeps", "s".repeat(63), { outbox: "o".repeat(53) }],
  ] satisfies [string, string, PostgresNames][])("names with %s work safely", async (_, schema, names) => {
    const url = await database();
    await query(url, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    await using store = postgres({ url, schema, names });
    expect(await store.schema.migrate()).toEqual([1]);
    expect(await store.schema.migrate()).toEqual([]);
    await store.schema.check();
    const pool = new pg.Pool({ connectionString: url });
    const outbox = createOutbox({ store });
    await outbox.transaction(pool, (_tx, events) =>
      events.add({ aggregateType: "T", aggregateId: "1", type: "E", payload: 1, idempotencyKey: "k" }),
    );
    await store.leases.renew("r1", 60_000);
    const holding = { relay: "r1", lanes: await store.leases.take("r1", all) };
    const window = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false });
    await store.outbox.settle(
      "r1",
      window.id!,
      window.claims.map((claim) => ({ claim, as: "published" })),
    );
    expect((await store.operator.status()).states.PUBLISHED).toBe(1);
    expect(await store.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("done");
    expect((await pool.query("SELECT n FROM t")).rows).toEqual([{ n: 1 }]);
    await pool.end();
  });

  test.each([
    ["an empty one", "", {}, /schema must be a name/],
    ["one with NUL", "a\0b", {}, /schema must be a name/],
    ["a schema of 64 letters", "s".repeat(64), {}, /longer than the 63 bytes that PostgreSQL keeps/],
    ["64 letters", "public", { outbox: "o".repeat(64) }, /longer than the 63 bytes that PostgreSQL keeps/],
    ["a prefix that leaves no room", "public", { prefix: "p".repeat(60) }, /longer than the 63 bytes/],
    ["one for two things", "public", { outbox: "t", inbox: "t" }, /given to two things/],
    ["a misspelt key", "public", { outbix: "t" } as PostgresNames, /no option "outbix": did you mean outbox/],
  ] satisfies [string, string, PostgresNames, RegExp][])("names: %s is refused clearly", (_, schema, names, message) => {
    expect(() => postgres({ url: server.url(), schema, names })).toThrow(message);
  });

  test("order-a, order-A, order-a with a space and órder-a are four aggregates and four keys", async () => {
    const url = await database();
    await using store = postgres({ url });
    await store.schema.migrate();
    const pool = new pg.Pool({ connectionString: url });
    const outbox = createOutbox({ store });
    const names = ["order-a", "order-A", "order-a ", "órder-a"];
    const added = await outbox.transaction(pool, (tx) =>
      outbox.add(
        tx,
        names.map((aggregateId) => ({ aggregateType: "Order", aggregateId, type: "E", payload: 1, idempotencyKey: aggregateId })),
      ),
    );
    expect(added.map(({ duplicate }) => duplicate)).toEqual([false, false, false, false]);
    await store.leases.renew("r1", 60_000);
    const holding = { relay: "r1", lanes: await store.leases.take("r1", all) };
    const window = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false });
    await store.outbox.settle(
      "r1",
      window.id!,
      window.claims.map((claim) => ({ claim, as: "parked", error: "no", release: false })),
    );
    expect((await store.operator.status()).holds.list.map(({ aggregateId }) => aggregateId).sort()).toEqual([...names].sort());
    await pool.end();
  });

  test("what cannot be reached, read or written is said in words, without a secret", async () => {
    const unreachable = postgres({ url: "postgres://ann:s3cret@127.0.0.1:1/app", connectTimeoutMs: 1_000 });
    await expect(unreachable.schema.check()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await expect(unreachable.schema.check()).rejects.toThrow(/^(?!.*s3cret).*127\.0\.0\.1:1\/app/);
    const empty = postgres({ url: await database() });
    await expect(empty.schema.check()).rejects.toMatchObject({ code: "NOT_MIGRATED" });
    await expect(empty.leases.look()).rejects.toMatchObject({ code: "NOT_MIGRATED" });
    const nowhere = postgres({ url: server.url("no_such_database") });
    await expect(nowhere.schema.check()).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringMatching(/no_such_database/) as string,
    });
    for (const store of [unreachable, empty, nowhere]) await store[Symbol.asyncDispose]();
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
