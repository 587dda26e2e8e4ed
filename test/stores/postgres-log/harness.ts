import pg from "pg";
import type { LogBatch, LoggedEvent, LogReading, LogTailer } from "../../../src/contracts/log-tailer.ts";
import { systemClock } from "../../../src/core/clock.ts";
import { LogUnreadable } from "../../../src/core/log-unreadable.ts";
import { createConnection } from "../../../src/stores/postgres/connection.ts";
import { postgres, type PartitionUnit } from "../../../src/stores/postgres/index.ts";
import { createTailer, type TailerOptions } from "../../../src/stores/postgres/log/tailer.ts";
import { logNames } from "../../../src/stores/postgres/log/names.ts";
import { namesOf } from "../../../src/stores/postgres/names.ts";
import { startPostgres, type Postgres, type PostgresVersion } from "../../servers/postgres.ts";
import type { Settings } from "../../servers/server.ts";

export const versions = [
  ["postgres14", 14],
  ["postgres", 15],
  ["postgres18", 18],
] as const;

export const startLogged = (version: PostgresVersion, settings: Settings = {}): Promise<Postgres> =>
  startPostgres({ version, settings: { wal_level: "logical", ...settings } });

export interface LogCase extends AsyncDisposable {
  readonly pool: pg.Pool;
  readonly schema: string;
  /** Of slot and publication. */
  readonly name: string;
  readonly tailer: LogTailer;
  /** Another one, as of another relay. */
  another(more?: Partial<TailerOptions>): LogTailer;
  /** Inserts events with these aggregate ids. */
  add(ids: readonly string[], by?: pg.Pool | pg.PoolClient): Promise<void>;
  /** By hand. */
  slot(): Promise<Record<string, unknown> | null>;
}

let made = 0;

export interface CaseOptions extends Partial<TailerOptions> {
  readonly partitions?: PartitionUnit;
  readonly database?: string;
}

/** An outbox of its own in a schema of its own. */
export async function logCase(server: Postgres, { partitions, database, ...more }: CaseOptions = {}): Promise<LogCase> {
  const schema = `log_${process.pid}_${++made}`;
  const url = server.url(database);
  const pool = new pg.Pool({ connectionString: url, max: 8 });
  pool.on("error", () => undefined);
  const store = postgres({ url, schema, ...(partitions === undefined ? {} : { partitions }) });
  await store.schema.migrate();
  await store[Symbol.asyncDispose]();
  const names = namesOf(schema);
  const settings = { url, connections: 4, connectTimeoutMs: 10_000 };
  const connection = createConnection({ pool: settings, place: "the database", statementTimeoutMs: 30_000 });
  const options = { connection, names, clock: systemClock, ...settings, ...more };
  const { name } = await logNames(connection.run, names);
  const tailer = createTailer(options);
  return {
    pool,
    schema,
    name,
    tailer,
    another: (others = {}) => createTailer({ ...options, ...others }),
    async add(ids, by = pool) {
      await by.query(
        `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', id, 'Placed', '{}' FROM unnest($1::text[]) AS id`,
        [ids],
      );
    },
    slot: async () =>
      (await pool.query<Record<string, unknown>>("SELECT * FROM pg_replication_slots WHERE slot_name = $1", [name])).rows[0] ?? null,
    async [Symbol.asyncDispose]() {
      await tailer.drop().catch(() => undefined);
      await connection.close();
      await pool.end();
    },
  };
}

export const idsOf = (events: readonly LoggedEvent[]): readonly string[] => events.map(({ envelope }) => envelope.aggregateId);

export const eventsOf = (batches: readonly LogBatch[]): readonly LoggedEvent[] =>
  batches.flatMap(({ transactions }) => transactions.flatMap(({ events }) => events));

/** Reads until the batches so far are enough, and ends the reading. */
export async function readUntil(reading: LogReading, enough: (batches: readonly LogBatch[]) => boolean): Promise<readonly LogBatch[]> {
  const batches: LogBatch[] = [];
  for await (const batch of reading) {
    batches.push(batch);
    if (enough(batches)) break;
  }
  return batches;
}

/** The aggregates of the next `count` events. */
export const readIds = async (reading: LogReading, count: number): Promise<readonly string[]> =>
  idsOf(eventsOf(await readUntil(reading, (batches) => eventsOf(batches).length >= count)));

/** What kind of trouble the work ends with; or what else it did. */
export async function troubleOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return "no trouble";
  } catch (error) {
    return error instanceof LogUnreadable ? error.trouble : String(error);
  }
}

export const never = (): AbortSignal => new AbortController().signal;
