import mysql2 from "mysql2/promise";
import type { StoreHarness } from "../../src/conformance/index.ts";
import { systemClock, type Clock } from "../../src/core/clock.ts";
import {
  mysql,
  type MysqlConnection,
  type MysqlDatabase,
  type MysqlOptions,
  type MysqlPool,
  type MysqlStore,
} from "../../src/stores/mysql/index.ts";
import { fingerprints } from "../../src/stores/mysql/schema.ts";
import { writeHostile } from "./mysql-hostile.ts";

export interface MysqlHarness extends StoreHarness<MysqlDatabase, MysqlConnection> {
  readonly store: MysqlStore;
  readonly pool: mysql2.Pool;
  readonly database: string;
  /** For other stores of the case: time passes for all of them. */
  readonly storeClock: Clock;
  /** Each row as a list of its values. */
  rows(sql: string): Promise<unknown[][]>;
}

export interface MysqlCases {
  create(more?: Omit<MysqlOptions, "url" | "pool">): Promise<MysqlHarness>;
  /** After the last case, before the server goes. */
  end(): Promise<void>;
}

/** A database for each case, on a server that all cases share; emptied and used again, since tables take long to make. */
export function casesOn(
  url: (database?: string) => string,
  settings: mysql2.PoolOptions = {},
  layout: Pick<MysqlOptions, "partitions"> = {},
): MysqlCases {
  const free: { readonly database: string; readonly pool: mysql2.Pool }[] = [];
  let made = 0;

  const open = async (): Promise<(typeof free)[number]> => {
    const database = `case_${process.pid}_${++made}`;
    const root = await mysql2.createConnection(url());
    await root.query(`CREATE DATABASE ${database}`);
    await root.end();
    const pool = mysql2.createPool({ uri: url(database), connectionLimit: 14, ...settings });
    await mysql({ pool: pool, ...layout }).schema.migrate();
    await pool.query("CREATE TABLE effects (name VARCHAR(255) NOT NULL)");
    return { database, pool };
  };

  return {
    async create(more = {}) {
      const { database, pool } = free.pop() ?? (await open());
      let passed = 0;
      const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + passed };
      const store = mysql({ pool: pool, clock, ...layout, ...more });
      const idle = new Set<mysql2.PoolConnection>();
      const rows = async (sql: string): Promise<unknown[][]> =>
        ((await pool.query({ sql, rowsAsArray: true })) as unknown as [unknown[][]])[0];
      return {
        store,
        pool,
        database,
        rows,
        db: pool as unknown as MysqlPool,
        storeClock: clock,
        clock: {
          now: () => Date.now(),
          async advance(ms) {
            await growOlder(pool, ms);
            passed += ms;
          },
        },
        async begin() {
          const connection = await pool.getConnection();
          idle.add(connection);
          await connection.query("START TRANSACTION");
          const end = async (how: string): Promise<void> => {
            await connection.query(how);
            idle.delete(connection);
            connection.release();
          };
          return { tx: connection as unknown as MysqlConnection, commit: () => end("COMMIT"), rollback: () => end("ROLLBACK") };
        },
        effect: async (tx, name) => void (await tx.query(`INSERT INTO effects (name) VALUES (${mysql2.escape(name)})`)),
        effects: async () => (await rows("SELECT name FROM effects")).map(([name]) => String(name)),
        lose: async (tx) => void (await tx.query("ROLLBACK")),
        commitInside: async (tx) => void (await tx.query("CREATE TABLE IF NOT EXISTS made_inside (n INT)")),
        hostile: () => writeHostile(pool),
        letters: async () =>
          (
            await rows(
              `SELECT consumer, topic, id, digest, aggregate_type, aggregate_id, event_type, envelope, data, raw, whole, error_code, error, error_detail, attempts, handler_version
               FROM waybill_letters ORDER BY seq`,
            )
          ).map(
            ([
              consumer,
              topic,
              id,
              digest,
              aggregateType,
              aggregateId,
              eventType,
              envelope,
              data,
              raw,
              whole,
              errorCode,
              error,
              errorDetail,
              attempts,
              version,
            ]) => ({
              consumer: String(consumer),
              topic: String(topic),
              id: String(id),
              digest: String(digest),
              aggregateType: String(aggregateType),
              aggregateId: String(aggregateId),
              eventType: String(eventType),
              envelope: String(envelope),
              data: data as Buffer,
              raw: raw as Buffer | null,
              whole: Number(whole),
              errorCode: String(errorCode),
              error: String(error),
              errorDetail: String(errorDetail),
              attempts: Number(attempts),
              handlerVersion: Number(version),
            }),
          ),
        audit: async () =>
          (await rows("SELECT who, action, events FROM waybill_audit ORDER BY entry")).map(([who, action, events]) => ({
            who: String(who),
            action: String(action),
            events: Number(events),
          })),
        async close() {
          for (const connection of idle) connection.destroy();
          await store[Symbol.asyncDispose]();
          await empty(pool);
          free.push({ database, pool });
        },
      };
    },
    async end() {
      for (const { pool } of free.splice(0)) await pool.end();
    },
  };
}

const tables = [
  "outbox",
  "inbox",
  "effects",
  ...["keys", "relays", "windows", "suspects", "holds", "destinations", "audit", "attempts", "seats", "letters"].map(
    (name) => `waybill_${name}`,
  ),
];

async function empty(pool: mysql2.Pool): Promise<void> {
  for (const table of tables) await pool.query(`DELETE FROM ${table}`);
  await pool.query("UPDATE waybill_lanes SET owner = NULL, epoch = 0, reopened = 0");
  await pool.query(`UPDATE waybill_meta SET version = ${fingerprints.length}, fingerprint = '${fingerprints.at(-1)!}'`);
}

const moments: Readonly<Record<string, readonly string[]>> = {
  outbox: ["created_at", "available_at", "next_attempt_at", "published_at"],
  inbox: ["processed_at"],
  waybill_keys: ["created_at"],
  waybill_relays: ["started_at", "renewed_at", "expires_at"],
  waybill_windows: ["claimed_at"],
  waybill_holds: ["since"],
  waybill_destinations: ["since"],
  waybill_audit: ["at"],
  waybill_attempts: ["failed_at"],
  waybill_seats: ["renewed_at", "expires_at"],
};

/** A server's clock cannot be set forward; but everything that it has written down can become older. */
async function growOlder(pool: mysql2.Pool, ms: number): Promise<void> {
  const connection = await pool.getConnection();
  await connection.query("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'"); // rows may have zero dates, which stay as they are
  const older = (name: string): string =>
    `${name} = IF(TO_DAYS(${name}) IS NULL, ${name}, ${name} - INTERVAL ${Math.round(ms * 1000)} MICROSECOND)`;
  for (const [table, columns] of Object.entries(moments)) await connection.query(`UPDATE ${table} SET ${columns.map(older).join(", ")}`);
  connection.destroy();
}
