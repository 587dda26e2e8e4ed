import pg from "pg";
import type { AuditLine, HostileRow, StoreHarness } from "../../src/conformance/index.ts";
import { type Clock, systemClock } from "../../src/core/clock.ts";
import type { LetterRow } from "../../src/core/letter.ts";
import { insertHostile } from "./postgres-hostile.ts";
import { postgres, type PgClient, type PgDatabase, type PostgresOptions } from "../../src/stores/postgres/index.ts";

export interface PostgresHarness extends StoreHarness<PgDatabase, PgClient> {
  readonly pool: pg.Pool;
  readonly schema: string;
  /** For other stores of the case: time passes for all of them. */
  readonly storeClock: Clock;
}

let made = 0;

/** A schema of its own for each case, on a server that all cases share. The store and its transactions may have another URL than the tests. */
export function harnessOn(
  url: () => string,
  more: Omit<PostgresOptions, "url" | "pool"> = {},
  storeUrl: (() => string) | null = null,
): () => Promise<PostgresHarness> {
  return async () => {
    const schema = `case_${process.pid}_${++made}`;
    const pool = new pg.Pool({ connectionString: url(), max: 12 });
    pool.on("error", () => undefined);
    const own = storeUrl === null ? pool : new pg.Pool({ connectionString: storeUrl(), max: 12 });
    let passed = 0;
    const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + passed };
    const store = postgres({ pool: own, schema, clock, ...more });
    await store.schema.migrate();
    await pool.query(`CREATE TABLE ${schema}.effects (name text NOT NULL)`);
    const idle = new Set<pg.PoolClient>();
    return {
      pool,
      schema,
      store,
      db: own as unknown as PgDatabase,
      storeClock: clock,
      clock: {
        now: () => Date.now(),
        async advance(ms) {
          await growOlder(pool, schema, ms);
          passed += ms;
        },
      },
      async begin() {
        const client = await own.connect();
        idle.add(client);
        await client.query("BEGIN");
        const end = async (how: string): Promise<void> => {
          await client.query(how);
          idle.delete(client);
          client.release();
        };
        return { tx: client as unknown as PgClient, commit: () => end("COMMIT"), rollback: () => end("ROLLBACK") };
      },
      effect: async (tx, name) => void (await tx.query(`INSERT INTO ${schema}.effects (name) VALUES ($1)`, [name])),
      effects: async () => (await pool.query<{ name: string }>(`SELECT name FROM ${schema}.effects`)).rows.map(({ name }) => name),
      lose: async (tx) => void (await tx.query("ROLLBACK")),
      commitInside: async (tx) => void (await tx.query("COMMIT")),
      letters: async () =>
        (await pool.query<Record<string, unknown>>(`SELECT * FROM ${schema}.waybill_letters ORDER BY seq`)).rows.map(letterIn),
      hostile: () => addHostile(pool, schema),
      audit: async () =>
        (await pool.query(`SELECT who, action, events::int AS events FROM ${schema}.waybill_audit ORDER BY at`)).rows as AuditLine[],
      async close() {
        for (const client of idle) client.release(true);
        await store[Symbol.asyncDispose]();
        await pool.query(`DROP SCHEMA ${schema} CASCADE`);
        await pool.end();
        if (own !== pool) await own.end();
      },
    };
  };
}

/** As a table may hold them whose owner added rows without the rules. */
async function addHostile(pool: pg.Pool, schema: string): Promise<readonly HostileRow[]> {
  const { rows: rules } = await pool.query<{ name: string; rule: string }>(
    `SELECT conname AS name, pg_get_constraintdef(oid) AS rule FROM pg_constraint
     WHERE conrelid = '${schema}.outbox'::regclass AND contype = 'c' AND conname LIKE 'waybill%'`,
  );
  for (const { name } of rules) await pool.query(`ALTER TABLE ${schema}.outbox DROP CONSTRAINT ${name}`);
  const found = await insertHostile(pool, schema);
  const { rows } = await pool.query<{ last: string }>(`SELECT last_value AS last FROM ${schema}.waybill_seq`);
  for (const { name, rule } of rules)
    await pool.query(
      `ALTER TABLE ${schema}.outbox ADD CONSTRAINT ${name} ${rule.replace("CHECK (", `CHECK (seq <= ${rows[0]!.last} OR `)} NOT VALID`,
    );
  return found;
}

/** A server's clock cannot be set forward; but everything that it has written down can become older. */
async function growOlder(pool: pg.Pool, schema: string, ms: number): Promise<void> {
  const { rows } = await pool.query<{ table_name: string; columns: string[] }>(
    `SELECT c.table_name, array_agg(c.column_name::text) AS columns FROM information_schema.columns c
     JOIN information_schema.tables t USING (table_schema, table_name)
     WHERE c.table_schema = $1 AND c.data_type LIKE 'timestamp%' AND t.table_type = 'BASE TABLE'
       AND NOT EXISTS (SELECT 1 FROM pg_class p WHERE p.oid = format('%I.%I', c.table_schema, c.table_name)::regclass AND p.relispartition)
     GROUP BY c.table_name`,
    [schema],
  );
  // An event that grows older may move to another partition, and must not be taken for a new one there.
  for (const { table_name: table, columns } of rows)
    await pool.query(
      `BEGIN; SET LOCAL waybill.moving = 'on';
       UPDATE ${schema}.${table} SET ${columns.map((name) => `${name} = ${name} - interval '${ms} milliseconds'`).join(", ")}; COMMIT`,
    );
}

const letterIn = (row: Readonly<Record<string, unknown>>): LetterRow =>
  ({
    consumer: row["consumer"],
    topic: row["topic"],
    id: row["id"],
    digest: row["digest"],
    aggregateType: row["aggregate_type"],
    aggregateId: row["aggregate_id"],
    eventType: row["event_type"],
    envelope: row["envelope"],
    data: row["data"],
    raw: row["raw"],
    whole: row["whole"],
    errorCode: row["error_code"],
    error: row["error"],
    errorDetail: row["error_detail"],
    attempts: row["attempts"],
    handlerVersion: row["handler_version"],
  }) as LetterRow;
