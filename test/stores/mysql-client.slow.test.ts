import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, mkdtempSync, rmSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import mysql2 from "mysql2/promise";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { mysql, type MysqlConnection, type MysqlStore } from "../../src/stores/mysql/index.ts";
import { literal } from "../../src/stores/mysql/values.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { accountFor } from "../servers/place.ts";
import type { Server } from "../servers/server.ts";
import { casesOn, type MysqlHarness } from "./mysql-harness.ts";

const all = [...Array(64).keys()];
const key = { consumer: "billing", id: "e1" };
const draft = { aggregateType: "Order", aggregateId: "order-1", type: "E", payload: 1 };

await describeWith("mariadb", "clients of MariaDB", () => {
  let server: Server;
  const cases = casesOn((database) => server.url(database));
  beforeAll(async () => {
    server = await startMariadb();
  });
  afterAll(async () => {
    await cases.end();
    await server[Symbol.asyncDispose]();
  });

  const own = (name: string, body: (harness: MysqlHarness) => Promise<void>): void => {
    test(name, async () => {
      const harness = await cases.create();
      try {
        await body(harness);
      } finally {
        await harness.close();
      }
    });
  };

  const evil = "it's \\'; DROP TABLE outbox; -- \u0000 店 😀 \" ` ? :name $1";
  test.each([
    ["casts of its own", { typeCast: () => "cast" }],
    ["rows as lists", { rowsAsArray: true }],
    ["rows by table", { nestTables: true }],
    ["named placeholders", { namedPlaceholders: true }],
    ["a format of its own", { queryFormat: (sql: string) => sql.replaceAll("?", "NULL") }],
    ["dates as text", { dateStrings: true, timezone: "+05:30" }],
    ["numbers as they come", { supportBigNumbers: true, bigNumberStrings: true, decimalNumbers: true }],
    ["another character set", { charset: "latin1" }],
    ["changed rows instead of found ones", { flags: ["-FOUND_ROWS"] }],
    ["backslashes that escape nothing", { init: "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PIPES_AS_CONCAT'" }],
    ["no strictness, and another time zone", { init: "SET SESSION sql_mode = '', time_zone = '-08:00', tx_isolation = 'SERIALIZABLE'" }],
  ] as [string, object & { readonly init?: string }][])("a pool with %s changes nothing", async (_, { init, ...options }) => {
    const prepared = await cases.create(); // by a pool without them
    const pool = mysql2.createPool({ uri: server.url(prepared.database), ...options });
    if (init !== undefined) pool.on("connection", (connection) => void connection.query(init));
    try {
      const store = mysql({ pool });
      const payloads = [`{"text":${JSON.stringify(evil)}}`, Uint8Array.from({ length: 256 }, (_, n) => n)];
      const availableAt = new Date(Date.UTC(2031, 5, 7, 8, 9, 10, 123));
      const rows = payloads.map((payload, n) => ({
        id: `00000000-0000-7000-8000-00000000000${n}`,
        aggregateType: "Ordér",
        aggregateId: evil.replaceAll("\0", ""),
        type: "😀",
        eventVersion: 3,
        payload,
        contentType: "text/plain",
        headers: { tenant: evil },
        idempotencyKey: `key ${evil} ${n}`.replaceAll("\0", ""),
        availableAt: null,
      }));
      await store.transactor.transaction(pool, (tx) => store.writer.append(tx, rows));
      const again = await store.transactor.transaction(pool, (tx) =>
        store.writer.append(tx, [{ ...rows[0]!, id: "00000000-0000-7000-8000-00000000000f" }]),
      );
      expect(again).toEqual([{ id: rows[0]!.id, duplicate: true }]);
      await store.transactor.transaction(pool, (tx) =>
        store.writer.append(tx, [{ ...rows[0]!, id: "00000000-0000-7000-8000-00000000000e", idempotencyKey: null, availableAt }]),
      );
      await expect(store.writer.append(pool as unknown as MysqlConnection, rows)).rejects.toMatchObject({ code: "NO_TRANSACTION" });
      const holding = await holdingOf(store);
      const { id, claims } = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false });
      expect(
        claims.map(({ envelope: { seq, data, createdAt, ...rest } }) => [
          typeof seq,
          Buffer.from(data).toString("hex"),
          near(createdAt),
          rest,
        ]),
      ).toEqual(
        rows.map(({ payload, availableAt: _availableAt, ...rest }) => ["bigint", Buffer.from(payload).toString("hex"), true, rest]),
      );
      await store.outbox.settle("r1", id!, [
        { claim: claims[0]!, as: "retry", afterMs: 3_600_000, error: evil },
        { claim: claims[1]!, as: "returned" },
      ]);
      const shown = await store.operator.show(rows[0]!.id);
      expect(shown).toMatchObject({ state: "FAILED", lastError: evil, hold: evil, retryCount: 1 });
      expect(near(new Date(shown!.nextAttemptAt!.getTime() - 3_600_000))).toBe(true);
      expect((await store.operator.show("00000000-0000-7000-8000-00000000000e"))!.availableAt).toEqual(availableAt);
      const { states, oldestUnpublishedMs } = await store.operator.status();
      expect([states.FAILED, oldestUnpublishedMs! < 60_000]).toEqual([1, true]);
      expect(await store.inbox.once(key, 1, (tx) => void tx)).toBe("done");
      expect(await store.inbox.once(key, 1, (tx) => void tx)).toBe("seen");
      expect(await store.inbox.sit({ consumer: evil, topic: evil, owner: evil }, 1_000)).toBe(true);
      expect(
        (await store.inbox.failed({ consumer: evil, id: evil }, evil)) + (await store.inbox.failed({ consumer: evil, id: evil }, evil)),
      ).toBe(3);
      expect(await prepared.rows("SELECT COUNT(*) FROM outbox")).toEqual([[3]]);
    } finally {
      await pool.end();
      await prepared.close();
    }
  });

  test("a value is text, a number, bytes, a moment or null, and never an object", () => {
    for (const value of [{ toSqlString: () => "1 OR 1 = 1" }, ["a"], { a: 1 }, NaN, undefined, true, Symbol("a"), new Date(NaN)])
      expect(() => literal(value as never)).toThrow(/a value for MySQL is/);
    expect(literal("a'")).toBe("_utf8mb4 X'6127'");
  });

  own("without a transaction nothing is written, on servers that cannot tell within the insert either", async (harness) => {
    const { pool, store, rows } = harness;
    const connection = await pool.getConnection();
    /** MySQL in MariaDB's clothes: without the variable that MariaDB has. */
    const mysql8 = new Proxy(connection, {
      get(of, name) {
        const value: unknown = Reflect.get(of, name, of);
        if (name !== "query") return typeof value === "function" ? (value.bind(of) as unknown) : value;
        return async (query: { readonly sql: string }): Promise<unknown> => {
          if (query.sql.includes("in_transaction")) throw new Error("Unknown system variable 'in_transaction'");
          return query.sql.includes("VERSION()") ? [[["8.0.36"]]] : of.query(query);
        };
      },
    }) as unknown as MysqlConnection;
    const outbox = createOutbox({ store });
    await expect(outbox.add(mysql8, draft)).rejects.toMatchObject({ code: "NO_TRANSACTION" });
    await connection.query("BEGIN");
    await outbox.add(mysql8, draft);
    await connection.query("COMMIT");
    await expect(outbox.add(mysql8, draft)).rejects.toMatchObject({ code: "NO_TRANSACTION" });
    await connection.query("SET autocommit = 0");
    await outbox.add(mysql8, draft);
    await connection.query("ROLLBACK");
    connection.destroy();
    expect(await rows("SELECT COUNT(*) FROM outbox")).toEqual([[1]]);
  });

  for (const level of ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]) {
    own(`keys that were used after the snapshot was made are found (${level})`, async ({ pool, store, rows, db }) => {
      const outbox = createOutbox({ store });
      const keyed = (n: number): typeof draft => ({ ...draft, idempotencyKey: `k${n}` }) as typeof draft;
      const old = await pool.getConnection();
      await old.query("SET SESSION innodb_snapshot_isolation = OFF");
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
        await using cut = await cutBefore("COMMIT", server.port, reaches);
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
    await using cut = await cutBefore("COMMIT", server.port, true);
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

  own("a server that does not answer is given up, and so is a pool without a free connection", async (harness) => {
    await using cut = await cutBefore("START TRANSACTION", server.port, "silence");
    const silent = mysql2.createPool({ ...settings(harness.database), port: cut.port });
    const store = mysql({ pool: silent, statementTimeoutMs: 200 });
    await expect(store.outbox.release(await holdingOf(harness.store), "t", 1)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await silent.end().catch(() => undefined);
    const small = mysql2.createPool({ ...settings(harness.database), connectionLimit: 1 });
    const busy = await small.getConnection();
    await expect(mysql({ pool: small, statementTimeoutMs: 200 }).leases.look()).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("connectionLimit") as string,
    });
    busy.release();
    await small.end();
  });

  test("what cannot be reached, read or written is said in words, without a secret", async () => {
    const at = (url: string): MysqlStore => mysql({ url, connectTimeoutMs: 1_000 });
    const { port } = server;
    const unreachable = at("mysql://ann:s3cret@127.0.0.1:1/app");
    await expect(unreachable.schema.check()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE", retryable: true });
    await expect(unreachable.schema.check()).rejects.toThrow(/^(?!.*s3cret).*127\.0\.0\.1:1\/app/);
    await expect(at(`mysql://ann:s3cret@127.0.0.1:${port}/test`).schema.check()).rejects.toThrow(
      /^(?!.*s3cret).*Access denied for user 'ann'/,
    );
    await expect(at(server.url("no_such_database")).schema.check()).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("no_such_database") as string,
    });
    const root = await mysql2.createConnection(server.url());
    await root.query("CREATE DATABASE empty_one");
    const empty = at(server.url("empty_one"));
    for (const failing of [() => empty.schema.check(), () => empty.leases.look(), () => empty.operator.status()])
      await expect(failing()).rejects.toMatchObject({
        code: "NOT_MIGRATED",
        message: expect.stringContaining("waybill migrate --store mysql://") as string,
      });
    await empty.schema.migrate();
    await root.query("CREATE USER plain@'127.0.0.1'");
    await root.query("GRANT ALL ON empty_one.* TO plain@'127.0.0.1'");
    await root.query("SET GLOBAL read_only = 1");
    try {
      await expect(at(server.url("empty_one").replace("root@", "plain@")).leases.renew("r1", 1_000)).rejects.toMatchObject({
        code: "STORE_READ_ONLY",
      });
    } finally {
      await root.query("SET GLOBAL read_only = 0");
      await root.end();
    }
  });

  test.each([
    ["postgres://h/db", /a URL is written as mysql:/],
    ["mysql:///db", /a URL is written as mysql:/],
    ["nonsense", /url is not a URL/],
    ["mysql://h/db?multipleStatements=true", /a parameter "multipleStatements"/],
    ["mysql://h/db?sslmode=prefer", /sslmode is disable, verify-full or no-verify/],
    ["mysql://h/db?sslrootcert=/no/such/file", /cannot be read/],
    ["mysql://127.0.0.1/db?sslmode=verify-full", /the host must be named as in its certificate/],
    ["mysql://[::1]/db?sslmode=require", /the host must be named as in its certificate/],
  ])("the URL %s is refused", (url, message) => {
    expect(() => mysql({ url })).toThrow(message);
  });

  test("options that make no sense are refused", () => {
    expect(() => mysql({})).toThrow(/either a url or a pool/);
    expect(() => mysql({ url: "mysql://h/db", pool: {} as never })).toThrow(/either a url or a pool/);
    expect(() => mysql({ pool: {} as never })).toThrow(/createPool of "mysql2\/promise"/);
    expect(() => mysql({ url: "mysql://h/db", onPublish: "drop" as never })).toThrow(/onPublish must be/);
    expect(() => mysql({ url: "mysql://h/db", tx: () => undefined } as never)).toThrow(/tx and db belong together/);
    expect(() => mysql({ url: "mysql://h/db", poolSize: 3 } as never)).toThrow(/no option "poolSize"/);
  });

  test("an encrypted connection is one to the server that was meant", async () => {
    const folder = certificates("localhost");
    const file = (name: string): string => join(folder, name);
    await using secure = await startMariadb({
      settings: { "ssl-ca": file("ca.pem"), "ssl-cert": file("cert.pem"), "ssl-key": file("key.pem") },
    });
    const check = async (host: string, query: string): Promise<string> => {
      await using store = mysql({ url: `mysql://root@${host}:${secure.port}/test${query}` });
      return await store.schema.check().then(
        () => "checked",
        (error: { code: string }) => error.code,
      );
    };
    const ca = encodeURIComponent(file("ca.pem"));
    expect(await check("localhost", `?sslmode=verify-full&sslrootcert=${ca}`)).toBe("NOT_MIGRATED");
    expect(await check("localhost", `?sslrootcert=${ca}`)).toBe("NOT_MIGRATED");
    expect(await check("localhost", "?sslmode=verify-full"), "signed by nobody we know").toBe("STORE_UNAVAILABLE");
    expect(await check("localhost", "?sslmode=require"), "encrypted means verified").toBe("STORE_UNAVAILABLE");
    expect(await check("127.0.0.1", "?sslmode=no-verify")).toBe("NOT_MIGRATED");
    expect(await check("127.0.0.1", "?sslmode=disable")).toBe("NOT_MIGRATED");
    certify(folder, "db.example");
    const root = await mysql2.createConnection(secure.url());
    await root.query("FLUSH SSL");
    await root.end();
    expect(await check("localhost", `?sslrootcert=${ca}`), "another name than the certificate's").toBe("STORE_UNAVAILABLE");
    expect(await check("localhost", "?sslmode=no-verify")).toBe("NOT_MIGRATED");
    rmSync(folder, { recursive: true });
  });

  own("the watch names who holds things back", async ({ pool, store }) => {
    expect((await store.housekeeping!.watch()).writer).toBeNull();
    const writer = await pool.getConnection();
    await writer.query("SET SESSION time_zone = '+09:00'");
    await writer.query("BEGIN");
    await writer.query("INSERT INTO effects VALUES ('open')");
    const { threadId } = writer;
    await settled(async () => {
      const { bytes, deadRows, writer: holder, horizon, unseen } = await store.housekeeping!.watch();
      expect([typeof bytes, deadRows, unseen]).toEqual(["number", "unknown", null]);
      expect(holder).toMatchObject({ kind: "session", name: String(threadId), user: "root", state: "idle in transaction" });
      expect(horizon).toMatchObject({ name: String(threadId) });
      expect((holder as { ageMs: number }).ageMs).toBeLessThan(60_000);
    });
    await writer.query("ROLLBACK");
    writer.destroy();
    const prepared = await pool.getConnection();
    for (const sql of ["XA START 'x1'", "INSERT INTO effects VALUES ('open')", "XA END 'x1'", "XA PREPARE 'x1'"]) await prepared.query(sql);
    prepared.destroy();
    await settled(async () => expect((await store.housekeeping!.watch()).writer).toMatchObject({ kind: "prepared", state: "prepared" }));
    await pool.query("XA ROLLBACK 'x1'");
  });

  own("what is deleted on publish is gone, and the rest is as ever", async ({ pool, rows, db }) => {
    const store = mysql({ pool, onPublish: "delete" });
    await createOutbox({ store }).transaction(db, (_tx, events) => events.add([draft, draft, draft]));
    const holding = await holdingOf(store);
    const { id, claims } = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false });
    const outcomes = [
      { claim: claims[0]!, as: "published" as const },
      { claim: claims[1]!, as: "retry" as const, afterMs: 0, error: "no" },
    ];
    expect(await store.outbox.settle("r1", id!, outcomes)).toMatchObject({ settled: 2 });
    expect(await store.outbox.settle("r1", id!, outcomes)).toMatchObject({ settled: 0 });
    expect(await rows("SELECT status FROM outbox ORDER BY seq")).toEqual([["FAILED"], ["PENDING"]]);
  });

  const settings = (database: string): mysql2.PoolOptions => ({ host: "127.0.0.1", port: server.port, user: "root", database });
});

async function holdingOf(store: MysqlStore): Promise<{ relay: string; lanes: ReadonlyMap<number, bigint> }> {
  await store.leases.renew("r1", 60_000);
  return { relay: "r1", lanes: await store.leases.take("r1", all) };
}

const near = (date: Date): boolean => Math.abs(date.getTime() - Date.now()) < 10_000;

/** Until it holds, since servers notice a cut, and their statistics change, a moment later. */
async function settled(check: () => Promise<void>): Promise<void> {
  for (const end = Date.now() + 5_000; ;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, 120));
    }
  }
}

interface Cut extends AsyncDisposable {
  readonly port: number;
  times(): number;
  mend(): void;
}

/** Stands before the server, and ends a connection when this statement comes by; or only keeps silent from there on. */
async function cutBefore(statement: string, port: number, reaches: boolean | "silence"): Promise<Cut> {
  const sockets = new Set<Socket>();
  let times = 0;
  let mended = false;
  const front = createServer((client) => {
    const back = connect(port, "127.0.0.1");
    for (const socket of [client, back]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => (client.destroy(), back.destroy()));
    }
    back.pipe(client);
    client.on("data", (data) => {
      if (mended || !data.includes(statement)) return void back.write(data);
      times++;
      back.unpipe(client);
      if (reaches === "silence") return;
      if (!reaches) return void client.destroy();
      back.once("data", () => client.destroy());
      back.resume();
      back.write(data);
    });
  });
  await new Promise<void>((resolve) => front.listen(0, "127.0.0.1", resolve));
  const address = front.address() as { port: number };
  return {
    port: address.port,
    times: () => times,
    mend: () => void (mended = true),
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => front.close(resolve));
    },
  };
}

/** An authority that nobody knows, and a certificate of its for one host. */
function certificates(host: string): string {
  const folder = mkdtempSync(join(tmpdir(), "waybill-tls-"));
  openssl(folder, "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=nobody -keyout ca-key.pem -out ca.pem");
  certify(folder, host);
  return folder;
}

function certify(folder: string, host: string): void {
  openssl(folder, `req -newkey rsa:2048 -nodes -subj /CN=${host} -addext subjectAltName=DNS:${host} -keyout key.pem -out request.pem`);
  openssl(folder, "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -copy_extensions copy -out cert.pem");
  const { uid, gid } = accountFor("mysql");
  chmodSync(folder, 0o755);
  if (uid !== undefined && gid !== undefined)
    for (const name of ["", "ca.pem", "cert.pem", "key.pem"]) chownSync(join(folder, name), uid, gid);
}

function openssl(folder: string, line: string): void {
  execFileSync("openssl", line.split(" "), { cwd: folder, stdio: "ignore" });
}
