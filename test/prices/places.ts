import { AsyncLocalStorage } from "node:async_hooks";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import mysql2 from "mysql2/promise";
import pg from "pg";
import { defaultDriver, type SqliteDatabase, type SqliteStatement } from "../../src/drivers/sqlite/driver.ts";
import type { Inbox } from "../../src/contracts/inbox.ts";
import type { Letters } from "../../src/contracts/letters.ts";
import type { Store } from "../../src/contracts/store.ts";
import type { Added, Draft } from "../../src/core/event.ts";
import type { Wake } from "../../src/core/wake.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import type { RelayOptions } from "../../src/relay/create-relay.ts";
import { mysql, type MysqlPool } from "../../src/stores/mysql/index.ts";
import { postgres, type PgPool } from "../../src/stores/postgres/index.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { grantWriter } from "../fuzz/grounds.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startPostgres } from "../servers/postgres.ts";

/** Whoever runs a call of the store counts the messages to the database that the call needs. */
export const trips = new AsyncLocalStorage<{ trips: number }>();
const trip = (): void => {
  const counter = trips.getStore();
  if (counter !== undefined) counter.trips += 1;
};

/** What a server has done since it started; null where the database does not say. */
export interface Meter {
  /** Rows and index entries that it read, for whomever. */
  readonly read: number | null;
  /** Bytes that it sent to Waybill. */
  readonly sent: number | null;
  /** Connections that Waybill has opened. */
  readonly connections: number;
}

/** How the rows of the price list are written in the database's SQL. */
export interface Dialect {
  /** A text of so many characters. */
  text(length: number): string;
  join(...parts: readonly string[]): string;
  /** A moment so many seconds from now. */
  inSeconds(seconds: number): string;
  readonly never: string;
  /** How many levels of JSON the database reads. */
  readonly deepest: number;
}

/** An empty outbox. */
export interface Place extends AsyncDisposable {
  readonly store: RelayOptions["store"] & { readonly inbox: Inbox<unknown>; readonly letters: Letters };
  /** As a role that may do nothing but add events, in one transaction. */
  write(statements: Iterable<string>): Promise<void>;
  /** A service's transaction, which adds through the outbox. Missing where one writer waits for the other before it can begin. */
  transaction?(wake: Wake, work: (add: (draft: Draft) => Promise<Added>) => Promise<void>): Promise<void>;
  meter(): Promise<Meter>;
  /** How many rows each table of Waybill's has, the outbox left out. */
  records(): Promise<Readonly<Record<string, number>>>;
  /** How many attempts the rows of the outbox have spent, all together. */
  attempts(): Promise<number>;
}

export interface Database extends AsyncDisposable {
  readonly sql: Dialect;
  create(): Promise<Place>;
}

const tables = ["windows", "holds", "destinations", "suspects", "keys", "attempts", "letters"];
const counts = (of: (table: string) => string): string =>
  `${[...tables.map((name) => `SELECT '${name}' AS name, count(*) AS n FROM ${of(`waybill_${name}`)}`), `SELECT 'inbox' AS name, count(*) AS n FROM ${of("inbox")}`].join(" UNION ALL ")}`;
const spent = (outbox: string): string => `SELECT coalesce(sum(retry_count), 0) AS n FROM ${outbox}`;
const recordsOf = (rows: readonly { readonly name: string; readonly n: unknown }[]): Record<string, number> =>
  Object.fromEntries(rows.flatMap(({ name, n }) => (Number(n) === 0 ? [] : [[name, Number(n)]])));

const mostClients = 8;

const adding =
  <Db, Tx>(store: Pick<Store<Db, Tx>, "writer" | "transactor">, db: Db): NonNullable<Place["transaction"]> =>
  (wake, work) => {
    const outbox = createOutbox({ store: { writer: store.writer, transactor: store.transactor, wake } });
    return outbox.transaction(db, (tx) => work((draft) => outbox.add(tx, draft)));
  };

export async function postgresDatabase(): Promise<Database> {
  const server = await startPostgres({ version: 15 });
  const asWriter = new URL(server.url());
  asWriter.username = "writer";
  const writer = new pg.Pool({ connectionString: String(asWriter), max: 1 });
  const pool = new pg.Pool({ connectionString: server.url(), max: mostClients });
  const clients = new Set<pg.PoolClient>();
  const ended = { clients: 0, bytes: 0 };
  pool.on("connect", (client) => void clients.add(client));
  pool.on("remove", (client) => {
    ended.clients += 1;
    ended.bytes += bytesTo(client);
    clients.delete(client);
  });
  await pool.query("CREATE ROLE writer LOGIN");
  const counting: PgPool = {
    totalCount: 0,
    end: () => Promise.resolve(),
    async connect() {
      const client = await pool.connect();
      return new Proxy(client, {
        get: (_, name) => {
          const value = Reflect.get(client, name) as unknown;
          if (typeof value !== "function") return value;
          return (...given: unknown[]): unknown => {
            if (name === "query") trip();
            return Reflect.apply(value, client, given);
          };
        },
      });
    },
  };
  let made = 0;
  return {
    sql: {
      text: (length) => `repeat('x', ${length})`,
      join: (...parts) => `(${parts.join(" || ")})::json`,
      inSeconds: (seconds) => `clock_timestamp() + interval '${seconds} seconds'`,
      never: "'infinity'",
      deepest: 2_000,
    },
    async create() {
      const schema = `price_${++made}`;
      const store = postgres({ pool: counting, schema });
      await store.schema.migrate();
      await grantWriter(store.schema, "writer", (sql) => pool.query(sql));
      return {
        store,
        write: (statements) => inOne((sql) => writer.query(sql), [`SET search_path = ${schema}`, ...statements]),
        transaction: adding(store, counting),
        async meter() {
          // A session tells the server's counters at the end of a transaction, and once a second by itself.
          const all = await Promise.all(Array.from({ length: mostClients }, () => pool.connect()));
          await Promise.all(all.map((client) => client.query("SELECT pg_stat_force_next_flush()")));
          const { rows } = await all[0]!.query<{ n: string }>(
            `SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = '${schema}')
               + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = '${schema}') AS n`,
          );
          for (const client of all) client.release();
          const sent = [...clients].reduce((sum, client) => sum + bytesTo(client), ended.bytes);
          return { read: Number(rows[0]!.n), sent, connections: ended.clients + clients.size };
        },
        attempts: async () => Number((await pool.query<{ n: string }>(spent(`${schema}.outbox`))).rows[0]!.n),
        records: async () => recordsOf((await pool.query<{ name: string; n: string }>(counts((table) => `${schema}.${table}`))).rows),
        async [Symbol.asyncDispose]() {
          await store[Symbol.asyncDispose]();
          await pool.query(`DROP SCHEMA ${schema} CASCADE`);
        },
      };
    },
    async [Symbol.asyncDispose]() {
      await writer.end();
      await pool.end();
      await server[Symbol.asyncDispose]();
    },
  };
}

const bytesTo = (client: pg.PoolClient): number =>
  (client as unknown as { readonly connection: { readonly stream: { readonly bytesRead: number } } }).connection.stream.bytesRead;

export async function mariadbDatabase(): Promise<Database> {
  const server = await startMariadb({ settings: { "max-allowed-packet": "256M", "innodb-log-file-size": "256M", userstat: 1 } });
  const root = mysql2.createPool({ uri: server.url(), connectionLimit: 2 });
  await root.query("CREATE USER writer@localhost");
  let made = 0;
  return {
    sql: {
      text: (length) => `REPEAT('x', ${length})`,
      join: (...parts) => `CONCAT(${parts.join(", ")})`,
      inSeconds: (seconds) => `UTC_TIMESTAMP(6) + INTERVAL ${seconds} SECOND`,
      never: "'9999-12-31 00:00:00'",
      deepest: 30,
    },
    async create() {
      const database = `price_${++made}`;
      await root.query(`CREATE DATABASE ${database}`);
      const pool = mysql2.createPool({ uri: server.url(database), connectionLimit: mostClients });
      const clients: mysql2.PoolConnection[] = [];
      pool.pool.on("connection", (client) => void clients.push(client as unknown as mysql2.PoolConnection));
      const counting: MysqlPool = {
        end: () => Promise.resolve(),
        getConnection: async () =>
          new Proxy(await pool.getConnection(), {
            get(of, name) {
              const value: unknown = Reflect.get(of, name, of);
              if (name !== "query") return typeof value === "function" ? (value.bind(of) as unknown) : value;
              return (query: mysql2.QueryOptions): unknown => (trip(), of.query(query));
            },
          }),
      };
      const store = mysql({ pool: counting });
      await store.schema.migrate();
      await grantWriter(store.schema, "writer@localhost", (sql) => pool.query(sql));
      const writer = await mysql2.createConnection(server.url(database).replace("root@", "writer@"));
      return {
        store,
        write: (statements) => inOne((sql) => writer.query(sql), statements),
        transaction: adding(store, counting),
        async meter() {
          const [rows] = (await root.query(
            "SELECT COALESCE(SUM(ROWS_READ), 0) AS n FROM information_schema.TABLE_STATISTICS WHERE TABLE_SCHEMA = ?",
            [database],
          )) as unknown as [{ n: string }[]];
          const sent = clients.reduce((sum, client) => sum + streamOf(client).bytesRead, 0);
          return { read: Number(rows[0]!.n), sent, connections: clients.length };
        },
        async attempts() {
          const [rows] = (await root.query(spent(`${database}.outbox`))) as unknown as [{ n: string }[]];
          return Number(rows[0]!.n);
        },
        async records() {
          const [rows] = (await root.query(counts((table) => `${database}.${table}`))) as unknown as [{ name: string; n: number }[]];
          return recordsOf(rows);
        },
        async [Symbol.asyncDispose]() {
          await store[Symbol.asyncDispose]();
          await writer.end();
          await pool.end();
          await root.query(`DROP DATABASE ${database}`);
        },
      };
    },
    async [Symbol.asyncDispose]() {
      await root.end();
      await server[Symbol.asyncDispose]();
    },
  };
}

const streamOf = (client: mysql2.PoolConnection): { readonly bytesRead: number } =>
  (client as unknown as { readonly stream: { readonly bytesRead: number } }).stream;

export async function sqliteDatabase(): Promise<Database> {
  const driver = await defaultDriver();
  const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "waybill-"));
  let made = 0;
  return {
    sql: {
      text: (length) => `replace(hex(zeroblob(${length / 2})), '0', 'x')`,
      join: (...parts) => parts.join(" || "),
      inSeconds: (seconds) => `strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '${seconds} seconds')`,
      never: "'9999-12-31T00:00:00.000Z'",
      deepest: 900,
    },
    async create() {
      const path = join(folder, `${++made}.db`);
      const store = sqlite({ path, open: (name) => counted(driver(name)) });
      await store.schema.migrate();
      const db = driver(path);
      db.exec("PRAGMA busy_timeout = 30000");
      return {
        store,
        write: (statements) => inOne(async (sql) => db.exec(sql), statements),
        meter: async () => ({ read: null, sent: null, connections: 0 }),
        attempts: async () => Number((db.prepare(spent("outbox")).all() as { n: number }[])[0]!.n),
        records: async () => recordsOf(db.prepare(counts((table) => table)).all() as { name: string; n: number }[]),
        async [Symbol.asyncDispose]() {
          await store[Symbol.asyncDispose]();
          db.close();
          for (const end of ["", "-wal", "-shm", "-journal"]) rmSync(path + end, { force: true });
        },
      };
    },
    [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

function counted(db: SqliteDatabase): SqliteDatabase {
  const told = (of: SqliteStatement): SqliteStatement => ({
    run: (...values) => (trip(), of.run(...values)),
    all: (...values) => (trip(), of.all(...values)),
  });
  return { exec: (sql) => (trip(), db.exec(sql)), prepare: (sql) => told(db.prepare(sql)), close: () => db.close() };
}

async function inOne(run: (sql: string) => Promise<unknown>, statements: Iterable<string>): Promise<void> {
  await run("BEGIN");
  try {
    for (const sql of statements) await run(sql);
  } catch (error) {
    await run("ROLLBACK");
    throw error;
  }
  await run("COMMIT");
}
