import mysql from "mysql2/promise";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { available, describeWith, judge, outside } from "./available.ts";
import { startMariadb } from "./mariadb.ts";
import { followed, startMariadbStandby } from "./mariadb-standby.ts";
import { startMysql } from "./mysql.ts";
import { startNats } from "./nats.ts";
import { startPgBouncer } from "./pgbouncer.ts";
import { startPostgres, type Postgres } from "./postgres.ts";
import { startRabbitmq } from "./rabbitmq.ts";
import { startRedis } from "./redis.ts";
import { ownFolder } from "./place.ts";
import { processesIn } from "./processes-in.ts";
import type { Server } from "./server.ts";
import { startStandby } from "./standby.ts";

async function ask(url: string, sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query<unknown[]>({ text: sql, rowMode: "array" });
    return rows.flat();
  } finally {
    await client.end();
  }
}

async function askMysql(url: string, sql: string): Promise<unknown[]> {
  const client = await mysql.createConnection(url);
  try {
    const [rows] = await client.query({ sql, rowsAsArray: true });
    return [rows].flat(2);
  } finally {
    await client.end();
  }
}

const endings: readonly (readonly [string, (server: Server) => Promise<void>])[] = [
  ["a fast restart", (server) => server.restart("fast")],
  ["an immediate restart", (server) => server.restart("immediate")],
  [
    "kill -9 of all its processes",
    async (server) => {
      await server.kill9();
      expect(processesIn(server.folder)).toEqual([]);
      await server.start();
    },
  ],
];

for (const [name, version] of [
  ["postgres14", 14],
  ["postgres", 15],
  ["postgres16", 16],
  ["postgres17", 17],
  ["postgres18", 18],
] as const) {
  await describeWith(name, `PostgreSQL ${version}`, () => {
    let server: Postgres;
    beforeAll(async () => void (server = await startPostgres({ version, settings: { work_mem: "5MB" } })));
    afterAll(() => server[Symbol.asyncDispose]());

    test("is that version, durable, with the settings that were given", async () => {
      expect(await ask(server.url(), "SELECT version()")).toEqual([expect.stringContaining(`PostgreSQL ${server.version} `)]);
      expect(server.version).toMatch(new RegExp(`^${version}\\.`));
      const settings =
        "SELECT current_setting(s) FROM unnest(ARRAY['fsync', 'synchronous_commit', 'wal_level', 'max_connections', 'work_mem']) s";
      expect(await ask(server.url(), settings)).toEqual(["on", "on", "replica", "200", "5MB"]);
      expect(server.log()).toContain("ready to accept connections");
    });

    test.for(endings)("keeps what was committed, and its port, through %s", async ([what, ending]) => {
      const { port } = server;
      await ask(server.url(), "CREATE TABLE IF NOT EXISTS kept (what text)");
      await ask(server.url(), `INSERT INTO kept VALUES ('${what}')`);
      await ending(server);
      expect(server.port).toBe(port);
      expect(await ask(server.url(), `SELECT what FROM kept WHERE what = '${what}'`)).toEqual([what]);
    });

    test("has a standby that takes over what the lost primary committed", async () => {
      const primary = await startPostgres({ version });
      onTestFinished(() => primary[Symbol.asyncDispose]());
      await ask(primary.url(), "CREATE TABLE kept AS SELECT 1 AS number");
      const standby = await startStandby(primary);
      onTestFinished(() => standby[Symbol.asyncDispose]());
      await ask(primary.url(), "INSERT INTO kept VALUES (2)");
      await expect.poll(() => ask(standby.url(), "SELECT number FROM kept ORDER BY number"), { timeout: 10_000 }).toEqual([1, 2]);
      await expect(ask(standby.url(), "INSERT INTO kept VALUES (3)")).rejects.toThrow("read-only");

      await primary.kill9();
      await standby.promote();
      await ask(standby.url(), "INSERT INTO kept VALUES (4)");
      await standby.restart("immediate");
      expect(await ask(standby.url(), "SELECT number FROM kept ORDER BY number")).toEqual([1, 2, 4]);
    });
  });
}

await describeWith(["postgres", "pgbouncer"], "PgBouncer", () => {
  test("gives one session to the transactions of two clients, and answers again after a restart", async () => {
    const postgres = await startPostgres({ version: 15 });
    onTestFinished(() => postgres[Symbol.asyncDispose]());
    const bouncer = await startPgBouncer(postgres, { settings: { default_pool_size: 1 } });
    onTestFinished(() => bouncer[Symbol.asyncDispose]());
    const clients = await Promise.all(
      [1, 2].map(async () => {
        const client = new pg.Client({ connectionString: bouncer.url() });
        await client.connect();
        return client;
      }),
    );
    const sessions = new Set<unknown>();
    for (const client of [...clients, ...clients]) {
      await client.query("BEGIN");
      sessions.add((await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid")).rows[0]?.pid);
      await client.query("COMMIT");
    }
    expect(sessions.size).toBe(1);
    await Promise.all(clients.map((client) => client.end()));

    await bouncer.restart("fast");
    expect(await ask(bouncer.url(), "SELECT version()")).toEqual([expect.stringContaining("PostgreSQL 15")]);
    await bouncer.kill9();
    await expect(ask(bouncer.url(), "SELECT 1")).rejects.toThrow("ECONNREFUSED");
    await bouncer.start();
    expect(await ask(bouncer.url(), "SELECT 1")).toEqual([1]);
  });
});

await describeWith("mariadb", "MariaDB", () => {
  let server: Server;
  beforeAll(async () => void (server = await startMariadb({ settings: { "max-connections": 77 } })));
  afterAll(() => server[Symbol.asyncDispose]());

  test("is durable, in utf8mb4, with the settings that were given", async () => {
    expect(await askMysql(server.url(), "SELECT version()")).toEqual([expect.stringContaining(`${server.version}-MariaDB`)]);
    const settings = "SELECT @@innodb_flush_log_at_trx_commit, @@collation_server, @@max_connections";
    expect(await askMysql(server.url(), settings)).toEqual([1, "utf8mb4_general_ci", 77]);
  });

  test.for(endings)("keeps what was committed, and its port, through %s", async ([what, ending]) => {
    const { port } = server;
    await askMysql(server.url(), "CREATE TABLE IF NOT EXISTS kept (what varchar(100))");
    await askMysql(server.url(), `INSERT INTO kept VALUES ('${what}')`);
    await ending(server);
    expect(server.port).toBe(port);
    expect(await askMysql(server.url(), `SELECT what FROM kept WHERE what = '${what}'`)).toEqual([what]);
  });

  test("has a standby that takes over what the lost primary committed", async () => {
    const primary = await startMariadb({ settings: followed });
    onTestFinished(() => primary[Symbol.asyncDispose]());
    const standby = await startMariadbStandby(primary.port);
    onTestFinished(() => standby[Symbol.asyncDispose]());
    await askMysql(primary.url(), "CREATE TABLE numbers (number int)");
    await askMysql(primary.url(), "INSERT INTO numbers VALUES (1)");
    const numbers = "SELECT number FROM numbers ORDER BY number";
    await expect.poll(() => askMysql(standby.url(), numbers).catch(() => []), { timeout: 10_000 }).toEqual([1]);

    await primary.kill9();
    await standby.promote();
    await askMysql(standby.url(), "INSERT INTO numbers VALUES (2)");
    expect(await askMysql(standby.url(), numbers)).toEqual([1, 2]);
  });
});

for (const [name, start] of [
  ["mysql", () => startMysql()],
  ["mariadb118", () => startMariadb({ version: "11.8" })],
  ["redis8", () => startRedis({ version: "redis-8" })],
  ["valkeyNewest", () => startRedis({ version: "valkey-newest" })],
  ["nats210", () => startNats({ version: "2.10" })],
  ["natsNewest", () => startNats({ version: "newest" })],
  ["rabbitmq4", () => startRabbitmq({ version: 4 })],
  ["rabbitmqNewest", () => startRabbitmq({ version: "newest" })],
] as const) {
  await describeWith(name, `${name}, of another Debian release`, () => {
    test("starts, restarts on its port and ends", async () => {
      await using server = await start();
      console.log(`${name}: ${server.version}`);
      expect(server.version).toMatch(/^\d+\.\d+/);
      await server.restart("fast");
      await server.kill9();
      expect(processesIn(server.folder)).toEqual([]);
    });
  });
}

describe("a server that cannot be had", () => {
  afterEach(() => void vi.unstubAllEnvs());
  const lacks = [{ name: "mysql", why: "it is away" }] as const;
  const other = [{ name: "postgres18", why: "it is away" }] as const;

  test("is skipped by name, and fails where it is required", () => {
    expect(judge([], "all")).toMatchObject({ verdict: "run" });
    expect(judge(other, "")).toEqual({ verdict: "skip", told: "postgres18: not to be had: it is away" });
    expect(judge(other, "mariadb, postgres")).toMatchObject({ verdict: "skip" });
    for (const required of ["postgres18", "mariadb, postgres18", "all"]) expect(judge(other, required)).toMatchObject({ verdict: "fail" });
    expect(judge(lacks, "all"), "it comes from a release that moves").toMatchObject({ verdict: "skip" });
    expect(judge(lacks, "all,mysql")).toMatchObject({ verdict: "fail" });
    expect(() => judge([], "postgres13")).toThrow("postgres13");
  });

  test("is told with the reason", async () => {
    vi.stubEnv("PATH", "");
    vi.stubEnv("WAYBILL_CACHE", ownFolder("no-cache", {}));
    expect(await available("mysql")).toBe("there is no apt-get to fetch mysql-server-core of Debian's sid with");
  });

  test("may be outside, and is met at its URL", () => {
    vi.stubEnv("WAYBILL_TEST_MYSQL_URL", "mysql://me:secret@db:3307/first?ssl=true");
    expect(outside("mysql")?.url()).toBe("mysql://me:secret@db:3307/first?ssl=true");
    expect(outside("mysql")?.url("a b")).toBe("mysql://me:secret@db:3307/a%20b?ssl=true");
    expect(outside("postgres")).toBeNull();
  });
});
