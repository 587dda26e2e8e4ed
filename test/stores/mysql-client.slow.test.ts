import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import mysql2 from "mysql2/promise";
import { expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { mysql, type MysqlConnection, type MysqlStore } from "../../src/stores/mysql/index.ts";
import { literal } from "../../src/stores/mysql/values.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { accountFor } from "../servers/place.ts";
import { cutBefore } from "./mysql-cut.ts";
import { ownMariadb } from "./mariadb-own.ts";

const all = [...Array(64).keys()];
const key = { consumer: "billing", id: "e1" };
const draft = { aggregateType: "Order", aggregateId: "order-1", type: "E", payload: 1 };

await describeWith("mariadb", "clients of MariaDB", () => {
  const mariadb = ownMariadb();
  const { cases, own } = mariadb;

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
    const pool = mysql2.createPool({ uri: mariadb.server.url(prepared.database), ...options });
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

  own("a server that does not answer is given up, and so is a pool without a free connection", async (harness) => {
    await using cut = await cutBefore("START TRANSACTION", mariadb.server.port, "silence");
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
    const at = (url: string): MysqlStore => mysql({ url });
    const { port } = mariadb.server;
    const unreachable = at("mysql://ann:s3cret@127.0.0.1:1/app");
    await expect(unreachable.schema.check()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE", retryable: true });
    await expect(unreachable.schema.check()).rejects.toThrow(/^(?!.*s3cret).*127\.0\.0\.1:1\/app/);
    await expect(at(`mysql://ann:s3cret@127.0.0.1:${port}/test`).schema.check()).rejects.toThrow(
      /^(?!.*s3cret).*Access denied for user 'ann'/,
    );
    await expect(at(mariadb.server.url("no_such_database")).schema.check()).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("no_such_database") as string,
    });
    const root = await mysql2.createConnection(mariadb.server.url());
    await root.query("CREATE DATABASE empty_one");
    const empty = at(mariadb.server.url("empty_one"));
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
      await expect(at(mariadb.server.url("empty_one").replace("root@", "plain@")).leases.renew("r1", 1_000)).rejects.toMatchObject({
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
    ["mysql://ann:s3cret%zz@h/db", /^(?!.*(s3cret|malformed)).*the URL's password has a % .* write it as %25/],
    ["mysql://ann%:s3cret@h/db", /^(?!.*s3cret).*the URL's user has a %/],
    ["mysql://h/d%b", /the URL's database has a %/],
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
    // The server itself writes statistics now and then.
    await settled(async () => expect((await store.housekeeping!.watch()).writer).toBeNull());
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

  const settings = (database: string): mysql2.PoolOptions => ({ host: "127.0.0.1", port: mariadb.server.port, user: "root", database });
});

async function holdingOf(store: MysqlStore): Promise<{ relay: string; lanes: ReadonlyMap<number, bigint> }> {
  await store.leases.renew("r1", 60_000);
  return { relay: "r1", lanes: await store.leases.take("r1", all) };
}

const near = (date: Date): boolean => Math.abs(date.getTime() - Date.now()) < 10_000;

/** Until it holds, since servers notice a cut, and their statistics change, a moment later. */
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
