import { checkOut } from "../../core/check-out.ts";
import { createOutbox } from "../../outbox/outbox.ts";
import type { Store } from "../../contracts/store.ts";
import { openPool as openMysqlPool, type MysqlConnection, type MysqlPool } from "../../stores/mysql/driver.ts";
import { mysql } from "../../stores/mysql/index.ts";
import { fill as fillValues } from "../../stores/mysql/values.ts";
import { openPool as openPostgresPool, type PgClient, type PgPool } from "../../stores/postgres/driver.ts";
import { postgres } from "../../stores/postgres/index.ts";
import { createTables, fill, type Ask, type Ground, type SqlRow, type Tables } from "./ground.ts";

const pooled = { connections: 4, connectTimeoutMs: 5_000 };
/** Short enough that a server that has gone silent does not keep a run waiting. */
const patience = { ...pooled, statementTimeoutMs: 10_000 };
const names = ["counters", "written", "elsewhere", "effects", "applied", "outbox"] as const;

function tablesBy(name: (of: string) => string): Tables {
  return Object.fromEntries(names.map((of) => [of, name(of)])) as Record<(typeof names)[number], string>;
}

/** A pool that is opened when it is first needed. */
function later<Pool extends { end(): Promise<void> }>(open: () => Promise<Pool>): { get(): Promise<Pool>; end(): Promise<void> } {
  let opened: Promise<Pool> | null = null;
  return {
    get: () => (opened ??= open()),
    end: async () => (await opened?.catch(() => null))?.end(),
  };
}

/** A schema of the run's own. */
export function postgresGround(url: string, run: string): Ground {
  const store = postgres({ url, schema: run, ...patience });
  const outbox = createOutbox({ store });
  const pool = later<PgPool>(() => openPostgresPool({ url, ...pooled }));
  const schema = `"${run}"`;
  const tables = tablesBy((of) => `${schema}.${of}`);
  const within = (tx: unknown): Ask => {
    const client = tx as PgClient;
    return async (sql, values = []) => {
      let nth = 0;
      return (
        await client.query(
          sql.replaceAll("?", () => `$${(nth += 1)}`),
          [...values],
        )
      ).rows;
    };
  };
  const once = async <T>(work: (ask: Ask) => Promise<T>): Promise<T> => {
    let broken = true;
    const listen = (): void => undefined;
    const client = await checkOut(await pool.get(), listen);
    try {
      await client.query("SET statement_timeout = 60000");
      const result = await work(within(client));
      broken = false;
      return result;
    } finally {
      client.off("error", listen);
      client.release(broken);
    }
  };
  return {
    store: store as unknown as Store<never, never>,
    tables,
    within,
    ask: (sql, values) => once((ask) => ask(sql, values)),
    async prepare(aggregates, consumers) {
      await store.schema.migrate();
      await once(async (ask) => {
        for (const sql of createTables(tables, { key: "text", position: "position bigserial PRIMARY KEY" })) await ask(sql);
        await fill(ask, tables, aggregates, consumers);
      });
    },
    transaction: async (work) =>
      outbox.transaction(await pool.get(), async (tx, events) => {
        await tx.query("SET LOCAL statement_timeout = 10000");
        await work({ ask: within(tx), add: (drafts) => outbox.add(tx, drafts), events });
      }),
    remove: () =>
      once(async (ask) => {
        await ask("SET lock_timeout = 10000");
        await ask(`DROP SCHEMA IF EXISTS ${schema} CASCADE`);
      }),
    async [Symbol.asyncDispose]() {
      await pool.end();
      await store[Symbol.asyncDispose]();
    },
  };
}

/** Tables whose names begin with the run's. */
export function mysqlGround(given: string, run: string): Ground {
  const url = given.replace(/^mariadb:/i, "mysql:");
  const own = { outbox: `${run}_outbox`, inbox: `${run}_inbox`, events: `${run}_outbox_events`, prefix: `${run}_` };
  const store = mysql({ url, names: own, ...patience });
  const outbox = createOutbox({ store });
  const pool = later<MysqlPool>(() => openMysqlPool({ url, ...pooled }));
  const tables = tablesBy((of) => `\`${run}_${of}\``);
  const within = (tx: unknown): Ask => {
    const connection = tx as MysqlConnection;
    return async (sql, values = []) => {
      const [rows] = await connection.query({ sql: fillValues(sql, values), timeout: 60_000 });
      return Array.isArray(rows) ? (rows as SqlRow[]) : [];
    };
  };
  const once = async <T>(work: (ask: Ask) => Promise<T>): Promise<T> => {
    const connection = await (await pool.get()).getConnection();
    let broken = true;
    try {
      const result = await work(within(connection));
      broken = false;
      return result;
    } finally {
      if (broken) connection.destroy();
      else connection.release();
    }
  };
  return {
    store: store as unknown as Store<never, never>,
    tables,
    within,
    ask: (sql, values) => once((ask) => ask(sql, values)),
    async prepare(aggregates, consumers) {
      await store.schema.migrate();
      await once(async (ask) => {
        const dialect = {
          key: "varchar(160) CHARACTER SET ascii COLLATE ascii_bin",
          position: "position bigint AUTO_INCREMENT PRIMARY KEY",
        };
        for (const sql of createTables(tables, dialect)) await ask(`${sql} ENGINE=InnoDB`);
        await fill(ask, tables, aggregates, consumers);
      });
    },
    transaction: async (work) =>
      outbox.transaction(await pool.get(), (tx, events) => work({ ask: within(tx), add: (drafts) => outbox.add(tx, drafts), events })),
    remove: () =>
      once(async (ask) => {
        const found = await ask(
          "SELECT TABLE_NAME AS name, TABLE_TYPE AS kind FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND LEFT(TABLE_NAME, ?) = ?",
          [run.length + 1, `${run}_`],
        );
        for (const { name, kind } of found) await ask(`DROP ${kind === "VIEW" ? "VIEW" : "TABLE"} IF EXISTS \`${String(name)}\``);
      }),
    async [Symbol.asyncDispose]() {
      await pool.end();
      await store[Symbol.asyncDispose]();
    },
  };
}
