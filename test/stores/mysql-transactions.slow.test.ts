import mysql2 from "mysql2/promise";
import { describe, expect, test } from "vitest";
import { effectCases } from "../../src/conformance/inbox-effects.ts";
import type { StoreHarness } from "../../src/conformance/index.ts";
import { fromMysql2 } from "../../src/outbox/handles/index.ts";
import { createOutbox, type Outbox } from "../../src/outbox/outbox.ts";
import { mysql, type MysqlConnection, type MysqlStore } from "../../src/stores/mysql/index.ts";
import type { SqlTransaction, StayingWriter } from "../../src/contracts/handle.ts";
import type { Row } from "../../src/core/event.ts";
import { describeWith } from "../servers/available.ts";
import { startMysql } from "../servers/mysql.ts";
import { cutBefore } from "./mysql-cut.ts";
import { both, ownMariadb } from "./mariadb-own.ts";
import type { MysqlHarness } from "./mysql-harness.ts";

const all = [...Array(64).keys()];
const key = { consumer: "billing", id: "e1" };
const draft = { aggregateType: "Order", aggregateId: "order-1", type: "E", payload: 1 };

for (const { name, title, start } of both)
  await describeWith(name, `transactions of ${title}`, () => {
    const mariadb = ownMariadb(start);
    const { cases, own } = mariadb;

    const settings = (database: string): mysql2.PoolOptions => ({ host: "127.0.0.1", port: mariadb.server.port, user: "root", database });

    own("without a transaction nothing is written", async (harness) => {
      const { pool, store, rows } = harness;
      const connection = (await pool.getConnection()) as unknown as MysqlConnection & mysql2.PoolConnection;
      const outbox = createOutbox({ store });
      await expect(outbox.add(connection, draft)).rejects.toMatchObject({ code: "NO_TRANSACTION" });
      await connection.query("BEGIN");
      await outbox.add(connection, draft);
      await connection.query("COMMIT");
      await expect(outbox.add(connection, draft)).rejects.toMatchObject({ code: "NO_TRANSACTION" });
      await connection.query("SET autocommit = 0");
      await outbox.add(connection, draft);
      await connection.query("ROLLBACK");
      connection.destroy();
      expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[1]]);
    });

    for (const level of ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]) {
      own(`keys that were used after the snapshot was made are found (${level})`, async ({ pool, store, rows, db }) => {
        const outbox = createOutbox({ store });
        const keyed = (n: number): typeof draft => ({ ...draft, idempotencyKey: `k${n}` }) as typeof draft;
        const old = await pool.getConnection();
        if (name === "mariadb") await old.query("SET SESSION innodb_snapshot_isolation = OFF"); // MySQL has no other way
        await old.query(`SET SESSION TRANSACTION ISOLATION LEVEL ${level}`);
        await old.query("START TRANSACTION WITH CONSISTENT SNAPSHOT");
        const first = await outbox.transaction(db, (tx) => outbox.add(tx, [keyed(1), keyed(2), keyed(3)]));
        const second = await outbox.add(old, [keyed(3), keyed(4), keyed(1)]);
        expect(second.map(({ id, duplicate }, n) => (duplicate ? [id, n] : n))).toEqual([[first[2]!.id, 0], 1, [first[0]!.id, 2]]);
        await old.query("COMMIT");
        old.destroy();
        expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[4]]);
      });
    }

    if (name === "mariadb")
      own(
        "where a snapshot must not be outrun, a key that was used since is a conflict, and found by the next transaction",
        async (harness) => {
          const { pool, store, db } = harness;
          const outbox = createOutbox({ store });
          const keyed = { ...draft, idempotencyKey: "k" };
          const old = await pool.getConnection();
          await old.query("SET SESSION innodb_snapshot_isolation = ON");
          await old.query("START TRANSACTION WITH CONSISTENT SNAPSHOT");
          const first = await outbox.transaction(db, (tx) => outbox.add(tx, keyed));
          await expect(outbox.add(old, keyed)).rejects.toMatchObject({ errno: 1020 });
          await old.query("ROLLBACK");
          await old.query("START TRANSACTION");
          expect(await outbox.add(old, keyed)).toEqual({ id: first.id, duplicate: true });
          await old.query("COMMIT");
          old.destroy();
        },
      );

    own("hundreds of used keys in one call do not take a statement each", async ({ pool, store, db }) => {
      const outbox = createOutbox({ store });
      const drafts = Array.from({ length: 300 }, (_, n) => ({ ...draft, idempotencyKey: `k${n}` }));
      const first = await outbox.transaction(db, (tx) => outbox.add(tx, drafts));
      const connection = await pool.getConnection();
      let statements = 0;
      const counted = new Proxy(connection, {
        get(of, name) {
          const value: unknown = Reflect.get(of, name, of);
          if (name === "query") statements++;
          return typeof value === "function" ? (value.bind(of) as unknown) : value;
        },
      }) as unknown as MysqlConnection;
      await connection.query("BEGIN");
      const again = await outbox.add(counted, [...drafts, { ...draft, idempotencyKey: "new" }]);
      await connection.query("COMMIT");
      connection.release();
      expect(again.map(({ duplicate }) => duplicate)).toEqual([...drafts.map(() => true), false]);
      expect(again.slice(0, 300).map(({ id }) => id)).toEqual(first.map(({ id }) => id));
      expect(statements).toBeLessThan(10);
    });

    own("a deadlock that a handler swallows leaves neither a mark nor what came after it", async ({ pool, store, rows }) => {
      await pool.query("CREATE TABLE IF NOT EXISTS stock (id int primary key, n int)");
      await pool.query("REPLACE INTO stock VALUES (1, 0), (2, 0)");
      const other = await pool.getConnection();
      await other.query("BEGIN");
      for (let n = 0; n < 50; n++) await other.query("INSERT INTO effects VALUES ('weight')"); // the lighter one is the victim
      await other.query("UPDATE stock SET n = n + 1 WHERE id = 2");
      let swallowed: unknown;
      const once = store.inbox.once(key, 1, async (tx) => {
        await tx.query("INSERT INTO effects VALUES ('before')");
        await tx.query("UPDATE stock SET n = n + 10 WHERE id = 1");
        const waiting = other.query("UPDATE stock SET n = n + 1 WHERE id = 1");
        await tx.query("UPDATE stock SET n = n + 10 WHERE id = 2").catch((error: unknown) => (swallowed = error));
        await tx.query("INSERT INTO effects VALUES ('after')");
        await waiting;
      });
      await expect(once).rejects.toMatchObject({ code: "TRANSACTION_LOST" });
      expect(swallowed).toMatchObject({ errno: 1213 });
      await other.query("ROLLBACK");
      other.release();
      expect(await rows("SELECT name FROM effects")).toEqual([]);
      expect(await rows("SELECT COUNT(*) FROM inbox")).toEqual([[0]]);
      expect(await store.inbox.once(key, 1, (tx) => void tx)).toBe("done");
      await pool.query("INSERT INTO effects VALUES ('committed')"); // the pool's connections commit by themselves, as before
      expect(await rows("SELECT name FROM effects")).toEqual([["committed"]]);
    });

    own("a deadlock that a handler lets pass is tried again, and has one effect", async ({ pool, store, rows }) => {
      await pool.query("CREATE TABLE IF NOT EXISTS stock (id int primary key, n int)");
      await pool.query("REPLACE INTO stock VALUES (1, 0), (2, 0)");
      const other = await pool.getConnection();
      await other.query("BEGIN");
      for (let n = 0; n < 50; n++) await other.query("INSERT INTO effects VALUES ('weight')");
      await other.query("UPDATE stock SET n = n + 1 WHERE id = 2");
      let runs = 0;
      const result = await store.inbox.once(key, 1, async (tx) => {
        runs++;
        await tx.query("INSERT INTO effects VALUES ('paid')");
        await tx.query("UPDATE stock SET n = n + 10 WHERE id = 1");
        const waiting = runs === 1 ? other.query("UPDATE stock SET n = n + 1 WHERE id = 1") : null;
        try {
          await tx.query("UPDATE stock SET n = n + 10 WHERE id = 2");
        } finally {
          if (waiting !== null) await waiting.then(() => other.query("ROLLBACK"));
        }
      });
      other.release();
      expect([result, runs]).toEqual(["done", 2]);
      expect(await rows("SELECT name FROM effects")).toEqual([["paid"]]);
      expect(await rows("SELECT n FROM stock ORDER BY id")).toEqual([[10], [10]]);
    });

    const ways: [string, (harness: MysqlHarness) => Outbox<mysql2.Pool, mysql2.Connection>][] = [
      ["the store's own client", ({ store }) => createOutbox({ store }) as never],
      ["a library's handle", ({ store }) => createOutbox({ store, tx: fromMysql2 }) as never],
      ["a store on a library's handle", ({ pool }) => createOutbox({ store: mysql({ pool, tx: fromMysql2, db: pool }) })],
    ];
    for (const [way, outboxOf] of ways)
      own(`a deadlock that a callback swallows is no success of its transaction (${way})`, async (harness) => {
        const { pool, rows } = harness;
        const outbox = outboxOf(harness);
        await pool.query("CREATE TABLE IF NOT EXISTS stock (id int primary key, n int)");
        await pool.query("REPLACE INTO stock VALUES (1, 0), (2, 0)");
        const other = await pool.getConnection();
        await other.query("BEGIN");
        for (let n = 0; n < 50; n++) await other.query("INSERT INTO effects VALUES ('weight')");
        await other.query("UPDATE stock SET n = n + 1 WHERE id = 2");
        let swallowed: unknown;
        const said = outbox.transaction(pool, async (tx) => {
          await outbox.add(tx, draft);
          await tx.query("UPDATE stock SET n = n + 10 WHERE id = 1");
          const waiting = other.query("UPDATE stock SET n = n + 1 WHERE id = 1");
          await tx.query("UPDATE stock SET n = n + 10 WHERE id = 2").catch((error: unknown) => (swallowed = error));
          await waiting;
        });
        await expect(said).rejects.toMatchObject({ code: "TRANSACTION_LOST" });
        expect(swallowed).toMatchObject({ errno: 1213 });
        await other.query("ROLLBACK");
        other.release();
        expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[0]]);
      });

    own("a transaction that its callback ended, or lost, is not taken for one that was kept", async ({ pool, store, db, rows }) => {
      const outbox = createOutbox({ store });
      for (const end of ["COMMIT", "ROLLBACK", "START TRANSACTION", "CREATE TABLE IF NOT EXISTS ended (n int)"]) {
        const ended = outbox.transaction(db, async (tx, events) => {
          events.add(draft);
          await tx.query(end);
        });
        await expect(ended).rejects.toMatchObject({ code: expect.stringMatching(/TRANSACTION_LOST|NO_TRANSACTION/) as string });
      }
      expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[0]]);
      const connection = (await pool.getConnection()) as unknown as MysqlConnection & mysql2.PoolConnection;
      await connection.query("BEGIN");
      await connection.query("INSERT INTO effects VALUES ('mine')");
      await expect(outbox.transaction(connection, () => undefined)).rejects.toMatchObject({ code: "ALREADY_IN_TRANSACTION" });
      await connection.query("ROLLBACK");
      const nested = outbox.transaction(connection, () => outbox.transaction(connection, () => undefined));
      await expect(nested).rejects.toMatchObject({ code: "ALREADY_IN_TRANSACTION" });
      expect(await outbox.transaction(connection, () => 7)).toBe(7);
      connection.release();
      expect(await rows("SELECT COUNT(*) FROM effects")).toEqual([[0]]);
    });

    for (const reaches of [true, false]) {
      own(
        `a connection that is cut during COMMIT is neither yes nor no, when the server ${reaches ? "got" : "did not get"} it`,
        async (harness) => {
          await using cut = await cutBefore("COMMIT", mariadb.server.port, reaches);
          const pool = mysql2.createPool({ ...settings(harness.database), port: cut.port });
          const outbox = createOutbox({ store: harness.store });
          await expect(outbox.transaction(pool, (_tx, events) => events.add(draft))).rejects.toMatchObject({
            code: "COMMIT_UNKNOWN",
            retryable: false,
          });
          expect(cut.times()).toBe(1);
          await using store = mysql({ pool });
          await expect(store.inbox.once(key, 1, (tx) => void tx)).rejects.toMatchObject({ code: "COMMIT_UNKNOWN" });
          await pool.end();
          await settled(async () => expect(await harness.rows("SELECT COUNT(*) FROM outbox")).toEqual([[reaches ? 1 : 0]]));
          expect(await harness.rows("SELECT COUNT(*) FROM inbox")).toEqual([[reaches ? 1 : 0]]);
        },
      );
    }

    own("a claim whose COMMIT got lost is made again, and nothing of it stays claimed", async (harness) => {
      await createOutbox({ store: harness.store }).transaction(harness.db, (_tx, events) => events.add([draft, draft]));
      const holding = await holdingOf(harness.store);
      await using cut = await cutBefore("COMMIT", mariadb.server.port, true);
      const pool = mysql2.createPool({ ...settings(harness.database), port: cut.port });
      const store = mysql({ pool });
      await expect(store.outbox.claim(holding, { limit: 10, open: [], narrow: false })).rejects.toMatchObject({
        code: "STORE_UNAVAILABLE",
        retryable: true,
      });
      cut.mend();
      const again = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false });
      expect(again.claims).toHaveLength(2);
      expect((await store.operator.status()).window.events).toBe(2);
      await pool.end();
    });

    describe("of a library, through its handle", () => {
      const create = async (): Promise<StoreHarness<mysql2.Pool, mysql2.PoolConnection>> => {
        const { store: _own, begin, effect, lose: _lose, commitInside, ...harness } = await cases.create();
        const store = mysql({ pool: harness.pool, clock: harness.storeClock, tx: fromMysql2, db: harness.pool });
        return {
          ...harness,
          store,
          db: harness.pool,
          begin: async () => ({ ...(await begin()), tx: await harness.pool.getConnection() }),
          effect: (tx, name) => effect(tx, name),
          commitInside: (tx) => commitInside!(tx),
        };
      };
      const can = {
        claimBesideWriter: true,
        parallelWriters: true,
        loseTransaction: false, // what comes behind its end may be kept: test/handles/inbox.slow.test.ts
        commitInside: true,
        uniqueIds: true,
        hostileRows: true,
      };
      effectCases({ test, create, can });
    });
  });

async function holdingOf(store: MysqlStore): Promise<{ relay: string; lanes: ReadonlyMap<number, bigint> }> {
  await store.leases.renew("r1", 60_000);
  return { relay: "r1", lanes: await store.leases.take("r1", all) };
}

/** Until it holds, since servers notice a cut a moment later. */
async function settled(check: () => Promise<void>): Promise<void> {
  for (const end = Date.now() + 15_000; ;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, 120));
    }
  }
}

await describeWith("mysql", "a library that prepares every statement, on MySQL", () => {
  const { own } = ownMariadb(startMysql);
  const prepared = (connection: mysql2.PoolConnection): SqlTransaction => ({
    query: async (sql) => ({ rows: (await connection.execute(sql))[0] as Record<string, unknown>[] }),
  });
  const row = (n: number, id = `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`): Row => ({
    ...{ id, aggregateType: "Order", aggregateId: "o", type: "E", eventVersion: 1, payload: "{}", contentType: "application/json" },
    ...{ headers: {}, idempotencyKey: null, availableAt: null },
  });

  own("adds more events than one statement has, all or none of them", async ({ pool, store, rows }) => {
    const connection = await pool.getConnection();
    await connection.query("START TRANSACTION");
    const many = Array.from({ length: 2_500 }, (_, n) => row(n));
    await expect(store.writer.append(prepared(connection), [...many, { ...row(0), aggregateId: "taken" }])).rejects.toMatchObject({
      code: "INVALID_DRAFT",
    });
    expect(await store.writer.append(prepared(connection), [row(9_999)])).toHaveLength(1);
    await connection.query("COMMIT");
    connection.release();
    expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[1]]);
  });

  own("is told that its transaction has ended in the middle of its work", async ({ pool, store }) => {
    const writer = store.writer as unknown as StayingWriter;
    const connection = await pool.getConnection();
    await connection.query("START TRANSACTION");
    expect(await writer.staying(prepared(connection), () => "done")).toBe("done");
    await expect(writer.staying(prepared(connection), () => connection.query("TRUNCATE effects"))).rejects.toMatchObject({
      code: "TRANSACTION_LOST",
    });
    connection.release();
  });

  own("is refused without a transaction, and the session's next one is what it would have been", async ({ pool, store, rows }) => {
    const connection = await pool.getConnection();
    await connection.query("SET SESSION TRANSACTION READ ONLY");
    await expect(store.writer.append(prepared(connection), [row(1)])).rejects.toMatchObject({ code: "NO_TRANSACTION" });
    await expect(connection.query("INSERT INTO effects VALUES ('a')")).rejects.toMatchObject({ errno: 1792 });
    connection.destroy();
    expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[0]]);
  });

  own("may begin its transaction with the event, with autocommit off", async ({ pool, store, rows }) => {
    const connection = await pool.getConnection();
    await connection.query("SET SESSION autocommit = 0");
    await store.writer.append(prepared(connection), [row(1)]);
    expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[0]]);
    await connection.query("COMMIT");
    connection.destroy();
    expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[1]]);
  });
});
