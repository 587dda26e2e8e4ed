import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import mysql2 from "mysql2/promise";
import pg from "pg";
import type { RelayOptions } from "../../src/relay/create-relay.ts";
import type { Operator } from "../../src/contracts/operator.ts";
import type { Schema } from "../../src/contracts/store.ts";
import { defaultDriver, type SqliteValue } from "../../src/drivers/sqlite/driver.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startPostgres } from "../servers/postgres.ts";
import type { Dialect, Row, Value } from "./rows.ts";

type OpenedStore = RelayOptions["store"] & { readonly operator: Operator; readonly schema: Schema } & AsyncDisposable;

/** An empty outbox. */
export interface Ground {
  /** For a relay, with connections of its own. */
  open(): OpenedStore;
  /** As a role that may do nothing but add events. Rejects when the database refuses the row. */
  insert(row: Row): Promise<void>;
  /** Every row that is not published and could be by now, in few words. */
  hidden(): Promise<readonly string[]>;
  published(aggregateType: string): Promise<number>;
  close(): Promise<void>;
}

export interface Grounds extends AsyncDisposable {
  readonly dialect: Dialect;
  create(): Promise<Ground>;
}

export const openGrounds: Readonly<Record<Dialect, () => Promise<Grounds>>> = {
  sqlite: sqliteGrounds,
  postgres: postgresGrounds,
  mariadb: mariadbGrounds,
};

const parameters = ({ columns }: Row, mark: (n: number) => string): { names: string; marks: string; values: (string | Buffer)[] } => {
  const values: (string | Buffer)[] = [];
  const place = (value: Value): string => {
    if ("sql" in value) return value.sql;
    values.push("text" in value ? value.text : value.bytes);
    return mark(values.length);
  };
  const marks = Object.values(columns).map(place).join(", ");
  return { names: Object.keys(columns).join(", "), marks, values };
};

const words = (rows: readonly object[]): string[] => rows.map((row) => JSON.stringify(Object.values(row)).slice(0, 300));

async function sqliteGrounds(): Promise<Grounds> {
  const driver = await defaultDriver();
  const folder = mkdtempSync(join(tmpdir(), "waybill-fuzz-"));
  let made = 0;
  return {
    dialect: "sqlite",
    async create() {
      const path = join(folder, `${++made}.db`);
      const open = (): OpenedStore => sqlite({ path });
      await using store = open();
      await store.schema.migrate();
      const db = driver(path);
      db.exec("PRAGMA busy_timeout = 5000");
      return {
        open,
        async insert(row) {
          const writer = driver(path);
          try {
            writer.exec("PRAGMA busy_timeout = 5000");
            for (const statement of row.session) writer.exec(statement);
            const { names, marks, values } = parameters(row, () => "?");
            writer.prepare(`INSERT INTO outbox (${names}) VALUES (${marks})`).run(...(values as SqliteValue[]));
          } finally {
            writer.close();
          }
        },
        hidden: async () =>
          words(
            db
              .prepare(
                `SELECT seq, status, quote(substr(aggregate_id, 1, 40)), available_at, next_attempt_at FROM outbox
                 WHERE status = 'PENDING' AND (available_at IS NULL OR available_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
                    OR status = 'FAILED' AND next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
                    OR status NOT IN ('PENDING', 'FAILED', 'PUBLISHED', 'BLOCKED', 'DEAD', 'DISCARDED') LIMIT 5`,
              )
              .all() as object[],
          ),
        published: async (type) =>
          Number(
            (db.prepare("SELECT count(*) AS n FROM outbox WHERE aggregate_type = ? AND status = 'PUBLISHED'").all(type)[0] as { n: number })
              .n,
          ),
        async close() {
          db.close();
          for (const end of ["", "-wal", "-shm", "-journal"]) rmSync(path + end, { force: true });
        },
      };
    },
    [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

async function postgresGrounds(): Promise<Grounds> {
  const server = await startPostgres({ version: 15 });
  const pool = new pg.Pool({ connectionString: server.url(), max: 4 });
  pool.on("error", () => undefined);
  await pool.query("CREATE ROLE writer LOGIN");
  const asWriter = new URL(server.url());
  asWriter.username = "writer";
  let made = 0;
  return {
    dialect: "postgres",
    async create() {
      const schema = `fuzz_${++made}`;
      const open = (): OpenedStore => postgres({ url: server.url(), schema, connections: 4, statementTimeoutMs: 10_000 });
      await using store = open();
      await store.schema.migrate();
      await grantWriter(store.schema, "writer", (sql) => pool.query(sql));
      const writer = new pg.Pool({ connectionString: String(asWriter), max: 1 });
      writer.on("error", () => undefined);
      return {
        open,
        async insert(row) {
          const client = await writer.connect();
          try {
            for (const statement of row.session) await client.query(statement);
            const { names, marks, values } = parameters(row, (n) => `$${n}`);
            await client.query(`INSERT INTO ${schema}.outbox (${names}) VALUES (${marks})`, values);
          } finally {
            client.release(row.session.length > 0);
          }
        },
        hidden: async () =>
          words(
            (
              await pool.query<object>(
                `SELECT seq, status, left(aggregate_id, 40), available_at::text, next_attempt_at::text FROM ${schema}.outbox
                 WHERE status = 'PENDING' AND (available_at IS NULL OR available_at <= clock_timestamp()) LIMIT 5`,
              )
            ).rows,
          ),
        published: async (type) =>
          (
            await pool.query<{ n: number }>(
              `SELECT count(*)::int AS n FROM ${schema}.outbox WHERE aggregate_type = $1 AND status = 'PUBLISHED'`,
              [type],
            )
          ).rows[0]!.n,
        async close() {
          await writer.end();
          await pool.query(`DROP SCHEMA ${schema} CASCADE`);
        },
      };
    },
    async [Symbol.asyncDispose]() {
      await pool.end();
      await server[Symbol.asyncDispose]();
    },
  };
}

async function mariadbGrounds(): Promise<Grounds> {
  const server = await startMariadb();
  const root = mysql2.createPool({ uri: server.url(), connectionLimit: 3 });
  await root.query("CREATE USER writer@localhost");
  let made = 0;
  return {
    dialect: "mariadb",
    async create() {
      const database = `fuzz_${++made}`;
      await root.query(`CREATE DATABASE ${database}`);
      const open = (): OpenedStore => mysql({ url: server.url(database), connections: 4, statementTimeoutMs: 10_000 });
      await using store = open();
      await store.schema.migrate();
      const own = await mysql2.createConnection(server.url(database));
      await grantWriter(store.schema, "writer@localhost", (sql) => own.query(sql));
      const uri = server.url(database).replace("root@", "writer@");
      const rows = async (sql: string): Promise<object[]> => ((await root.query(sql)) as unknown as [object[]])[0];
      return {
        open,
        async insert(row) {
          const writer = await mysql2.createConnection({ uri, multipleStatements: false });
          writer.on("error", () => undefined);
          try {
            const { names, marks, values } = parameters(row, () => "?");
            for (const statement of row.session) await writer.query(statement);
            const sql = mysql2.format(`INSERT INTO outbox (${names}) VALUES (${marks})`, values);
            await writer.query(sql);
          } finally {
            writer.destroy();
          }
        },
        hidden: async () =>
          words(
            await rows(
              `SELECT seq, status, LEFT(aggregate_id, 40), CAST(available_at AS CHAR), CAST(next_attempt_at AS CHAR) FROM ${database}.outbox
               WHERE status = 'PENDING' AND (available_at IS NULL OR available_at <= UTC_TIMESTAMP(6)) LIMIT 5`,
            ),
          ),
        published: async (type) =>
          (
            (await rows(
              `SELECT COUNT(*) AS n FROM ${database}.outbox WHERE aggregate_type = ${mysql2.escape(type)} AND status = 'PUBLISHED'`,
            )) as { n: number }[]
          )[0]!.n,
        async close() {
          await own.end();
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

/** The grants that `waybill migrate --print --grants` shows for a writer. */
export async function grantWriter(schema: Schema, writer: string, run: (sql: string) => Promise<unknown>): Promise<void> {
  const grants = schema.grants().match(/^GRANT [^;]* TO `?waybill_writer`?;$/gm) ?? [];
  if (grants.length === 0) throw new Error("migrate --print --grants shows no grants for a writer");
  for (const statement of grants) await run(statement.replace(/`?waybill_writer`?;$/, writer));
}
