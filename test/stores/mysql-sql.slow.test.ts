import { execFile } from "node:child_process";
import { promisify } from "node:util";
import mysql2 from "mysql2/promise";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { mysql, type MysqlNames } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";

const run = promisify(execFile);
const all = [...Array(64).keys()];
let databases = 0;

await describeWith("mariadb", "plain SQL on MariaDB", () => {
  let server: Server;
  beforeAll(async () => {
    server = await startMariadb();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  /** A database of its own, as a user would have it. */
  const database = async (): Promise<string> => {
    const name = `db_${++databases}`;
    await query(server.url(), `CREATE DATABASE ${name}`);
    return server.url(name);
  };

  /** The server's own client, as in a shell. */
  const shell = async (url: string, sql: string): Promise<string> => {
    const { port, pathname } = new URL(url);
    const args = ["--no-defaults", "-h127.0.0.1", `-P${port}`, "-uroot", "--batch", pathname.slice(1)];
    const child = run("mariadb", args);
    child.child.stdin!.end(sql);
    return (await child).stdout;
  };

  test("a one-liner adds an event, another one shows every state", async () => {
    const url = await database();
    await using store = mysql({ url });
    await store.schema.migrate();
    await shell(
      url,
      `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'order-1', 'OrderPlaced', '{"n": 1}')`,
    );
    expect(await shell(url, "SELECT seq, aggregate_id, event_type, state, published FROM outbox_events")).toBe(
      "seq\taggregate_id\tevent_type\tstate\tpublished\n1\torder-1\tOrderPlaced\tPENDING\t0\n",
    );
    await store.leases.renew("r1", 60_000);
    const holding = { relay: "r1", lanes: await store.leases.take("r1", all) };
    const window = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false });
    expect(await shell(url, "SELECT state, owner FROM outbox_events")).toBe("state\towner\nPUBLISHING\tr1\n");
    const { envelope } = window.claims[0]!;
    expect(Buffer.from(envelope.data).toString()).toBe('{"n": 1}');
    expect(envelope).toMatchObject({
      aggregateId: "order-1",
      type: "OrderPlaced",
      eventVersion: 1,
      headers: {},
      contentType: "application/json",
    });
    expect(envelope.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/);
    await store.outbox.settle("r1", window.id!, [{ claim: window.claims[0]!, as: "parked", error: "no", release: false }]);
    await shell(
      url,
      `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'order-1', 'OrderPaid', '{}'), ('Order', 'order-2', 'OrderPlaced', '{}');
       INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload_bytes, available_at) VALUES ('Order', 'order-3', 'E', X'00ff', UTC_TIMESTAMP() + INTERVAL 1 HOUR)`,
    );
    const next = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false });
    await store.outbox.settle(
      "r1",
      next.id!,
      next.claims.map((claim) => ({ claim, as: "published" })),
    );
    expect(await shell(url, "SELECT state, hold, COUNT(*) AS n FROM outbox_events GROUP BY state, hold ORDER BY state")).toBe(
      "state\thold\tn\nBLOCKED\tno\t1\nDEAD\tno\t1\nPENDING\tNULL\t1\nPUBLISHED\tNULL\t1\n",
    );
    const listed = await store.operator.list({ limit: 10 });
    expect(await shell(url, "SELECT id, state FROM outbox_events ORDER BY seq DESC")).toBe(
      `id\tstate\n${listed.map(({ id, state }) => `${id}\t${state}\n`).join("")}`,
    );
  });

  test("a key that was used is refused to plain SQL, by the name of the event that has it", async () => {
    const url = await database();
    await using store = mysql({ url });
    await store.schema.migrate();
    const insert = (how: string, key: string): Promise<string> =>
      shell(
        url,
        `${how} INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES (UUID(), 'Order', '1', 'E', '1', '${key}')`,
      );
    await insert("INSERT", "k");
    const [first] = await store.operator.list({ limit: 1 });
    await expect(insert("INSERT", "k")).rejects.toThrow(`ERROR 1062 (23000) at line 1: the idempotency key was used by event ${first!.id}`);
    // It must not be added twice, whatever else is ignored.
    await expect(insert("INSERT IGNORE", "k")).rejects.toThrow("ERROR 1062");
    await insert("INSERT", "K");
    expect(await store.operator.list({ limit: 10 })).toHaveLength(2);
  });

  test.each([
    ["an empty name", "aggregate_type, aggregate_id, event_type, payload", "'', '1', 'E', '1'"],
    ["headers that are no JSON", "aggregate_type, aggregate_id, event_type, payload, headers", "'O', '1', 'E', '1', '{'"],
    ["no payload", "aggregate_type, aggregate_id, event_type", "'O', '1', 'E'"],
    ["two payloads", "aggregate_type, aggregate_id, event_type, payload, payload_bytes", "'O', '1', 'E', '1', X'00'"],
    ["version 0", "aggregate_type, aggregate_id, event_type, payload, event_version", "'O', '1', 'E', '1', 0"],
  ])("plain SQL is refused with %s", async (_, columns, values) => {
    const url = await database();
    await using store = mysql({ url });
    await store.schema.migrate();
    for (const mode of ["STRICT_ALL_TABLES", ""])
      await expect(shell(url, `SET sql_mode = '${mode}'; INSERT INTO outbox (${columns}) VALUES (${values})`)).rejects.toThrow(
        /CONSTRAINT|Field|default/,
      );
    expect(await store.operator.list({ limit: 1 })).toEqual([]);
  });

  test("what is printed makes the same tables, and its grants are enough for each role and no more", async () => {
    const url = await database();
    const { schema } = mysql({ url });
    await shell(url, schema.print());
    const roles = ["writer", "relay", "subscriber", "operator"] as const;
    expect(schema.grants().split("\n").length).toBeGreaterThan(10);
    expect(schema.grants()).toMatch(/^-- PROCESS shows .* every session.*\n(-- .*\n)*-- .*hold.*\nGRANT PROCESS ON/m);
    await shell(url, schema.grants());
    for (const role of roles)
      await shell(
        url,
        `CREATE USER ${role}@'127.0.0.1'; GRANT waybill_${role} TO ${role}@'127.0.0.1'; SET DEFAULT ROLE waybill_${role} FOR ${role}@'127.0.0.1'`,
      );
    const [writer, relay, subscriber, operator] = roles.map((role) =>
      mysql2.createPool({ uri: url.replace("root@", `${role}@`), connectionLimit: 3 }),
    );
    const [written, relayed, subscribed, operated] = [writer!, relay!, subscriber!, operator!].map((pool) => mysql({ pool }));

    const outbox = createOutbox({ store: written! });
    const draft = (key: string): object => ({ aggregateType: "Order", aggregateId: "1", type: "E", payload: 1, idempotencyKey: key });
    const add = async (...keys: string[]): Promise<boolean[]> =>
      (await outbox.transaction(writer!, (tx) => outbox.add(tx, keys.map(draft) as never[]))).map(({ duplicate }) => duplicate);
    expect((await Promise.all([add("k"), add("k")])).flat().sort()).toEqual([false, true]);
    expect(await add("a", "k", "b", "a")).toEqual([false, true, false, true]);
    expect(await add("a", "k", "b", "c")).toEqual([true, true, true, false]);
    for (const refused of [
      "SELECT * FROM outbox",
      "UPDATE outbox SET status = 'PUBLISHED'",
      "SELECT * FROM waybill_keys",
      "INSERT INTO outbox (seq) VALUES (1)",
      "SELECT * FROM outbox_events",
    ])
      await expect(writer!.query(refused)).rejects.toMatchObject({ code: expect.stringMatching(/DENIED|VIEW_INVALID/) as string });

    await relayed!.schema.check();
    await relayed!.leases.renew("r1", 60_000);
    const holding = { relay: "r1", lanes: await relayed!.leases.take("r1", all) };
    const window = await relayed!.outbox.claim(holding, { limit: 10, open: [], narrow: false });
    expect(window.claims).toHaveLength(4);
    await relayed!.outbox.settle("r1", window.id!, [
      { claim: window.claims[0]!, as: "parked", error: "no", release: false },
      { claim: window.claims[1]!, as: "returned" },
      { claim: window.claims[2]!, as: "returned", destination: { topic: "t", why: "no" } },
    ]);
    await relayed!.outbox.release(holding, "t", 1);
    await expect(relay!.query("UPDATE outbox SET payload = 'x'")).rejects.toMatchObject({ errno: 1143 });

    expect((await operated!.operator.redrive({}, { who: "ann", dryRun: false })).events).toBe(1);
    for (let more = true; more;) {
      const again = await relayed!.outbox.claim(holding, { limit: 10, open: [], narrow: false });
      if (again.id !== null)
        await relayed!.outbox.settle(
          "r1",
          again.id,
          again.claims.map((claim) => ({ claim, as: "published" })),
        );
      more = again.id !== null || again.more;
    }
    expect(await operated!.operator.purge(new Date(Date.now() + 1_000), { who: "ann", dryRun: false })).toBe(4);
    expect((await operated!.operator.status()).states.DEAD).toBe(0);
    await relayed!.operator.purge(new Date(), { who: "r1", dryRun: false });
    expect((await relayed!.housekeeping!.watch()).unseen).toBeNull();
    await relayed!.leases.leave("r1");

    expect(await subscribed!.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("done");
    expect(await subscribed!.inbox.failed({ consumer: "c", id: "2" }, "no")).toBe(1);
    expect(await subscribed!.inbox.sit({ consumer: "c", topic: "t", owner: "me" }, 1_000)).toBe(true);
    await subscribed!.inbox.leave({ consumer: "c", topic: "t", owner: "me" });
    await subscribed!.inbox.forget(new Date(Date.now() + 60_000), 1_000);
    await expect(subscriber!.query("SELECT * FROM outbox")).rejects.toMatchObject({ errno: 1142 });
    for (const pool of [writer!, relay!, subscriber!, operator!]) await pool.end();
  });

  test.each([
    ["quotes", "my`schema", { outbox: "o'ut\"box", prefix: "w`b_" }],
    ["dots", "a.b.c", { outbox: "out.box", inbox: "in.box", events: "ev.ents" }],
    ["SQL", "x`; DROP TABLE t; --", { outbox: "outbox; DELETE FROM t", inbox: "inbox--", events: "/* e */ #" }],
    ["capitals, spaces and backslashes", "My Schema", { outbox: "Out \\ Box", events: "The Events", prefix: "%s_" }],
    ["other letters", "схема", { outbox: "صندوق", prefix: "ウェイ_" }],
    ["as many characters as there may be", "s".repeat(64), { outbox: "o".repeat(64), events: "é".repeat(64), prefix: "p".repeat(51) }],
  ] satisfies [string, string, MysqlNames][])("names with %s work safely", async (_, schema, names) => {
    const url = await database();
    await query(url, "CREATE TABLE t (n int)");
    await query(url, "INSERT INTO t VALUES (1)");
    await using store = mysql({ url, schema, names });
    expect(await store.schema.migrate()).toEqual([1]);
    expect(await store.schema.migrate()).toEqual([]);
    await store.schema.check();
    const pool = mysql2.createPool(url);
    const outbox = createOutbox({ store });
    const draft = { aggregateType: "T", aggregateId: "1", type: "E", payload: 1, idempotencyKey: "k" };
    expect(await outbox.transaction(pool, (tx) => outbox.add(tx, [draft, draft]))).toMatchObject([
      { duplicate: false },
      { duplicate: true },
    ]);
    expect(await outbox.transaction(pool, (tx) => outbox.add(tx, draft))).toMatchObject({ duplicate: true });
    await store.leases.renew("r1", 60_000);
    const holding = { relay: "r1", lanes: await store.leases.take("r1", all) };
    const window = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false });
    await store.outbox.settle(
      "r1",
      window.id!,
      window.claims.map((claim) => ({ claim, as: "published" })),
    );
    expect((await store.operator.status()).states.PUBLISHED).toBe(1);
    expect(await store.operator.purge(new Date(Date.now() + 60_000), { who: "ann", dryRun: false })).toBe(1);
    expect(await store.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("done");
    expect((await pool.query({ sql: "SELECT n FROM t", rowsAsArray: true }))[0]).toEqual([[1]]);
    await pool.end();
  });

  test.each([
    ["an empty one", "", {}, /schema must be a name/],
    ["one with NUL", "a\0b", {}, /schema must be a name/],
    ["one that clients take for a parameter", "app", { outbox: "what?" }, /outbox must be a name/],
    ["one that ends in a space", "app", { inbox: "inbox " }, /inbox must be a name/],
    ["65 letters", "app", { outbox: "o".repeat(65) }, /longer than the 64 characters/],
    ["a prefix that leaves no room", "app", { prefix: "p".repeat(60) }, /longer than the 64 characters/],
    ["one for two things", "app", { outbox: "t", inbox: "T" }, /given to two things/],
    ["a misspelt key", "app", { outbix: "t" } as MysqlNames, /no option "outbix": did you mean outbox/],
  ] satisfies [string, string, MysqlNames, RegExp][])("names: %s is refused clearly", (_, schema, names, message) => {
    expect(() => mysql({ url: server.url(), schema, names })).toThrow(message);
  });

  test("order-a, order-A, order-a with a space and órder-a are four aggregates and four keys", async () => {
    const url = await database();
    await using store = mysql({ url });
    await store.schema.migrate();
    const pool = mysql2.createPool(url);
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
});

async function query(url: string, sql: string): Promise<void> {
  const connection = await mysql2.createConnection(url);
  try {
    await connection.query(sql);
  } finally {
    await connection.end();
  }
}
