import pg from "pg";
import { startPostgres, type Postgres, type PostgresVersion } from "../servers/postgres.ts";
import { postgres, type PostgresStore } from "../../src/stores/postgres/index.ts";
import type { Committed, Rest } from "./judge.ts";

/** The database of a play, with the outbox and the writers' own tables. */
export interface Ground extends AsyncDisposable {
  readonly server: Postgres;
  readonly store: PostgresStore;
  readonly url: string;
  /** Rows as numbers and text. Rejects while the database is away. */
  sql(text: string, values?: readonly unknown[]): Promise<readonly Record<string, unknown>[]>;
  /** What writers have committed in this segment, by their own ledger. */
  committed(segment: number): Promise<{ readonly events: readonly Committed[]; readonly vanished: readonly string[] }>;
  /** Rows that do not count as published, and rows that the ledger does not know. `reached` is for the play to say. */
  rows(): Promise<Omit<Rest, "reached" | "vanished">>;
  /** Puts away what was judged. */
  forget(segment: number): Promise<void>;
}

const tables = `
CREATE TABLE locks (aggregate text PRIMARY KEY);
CREATE TABLE ledger (id text PRIMARY KEY, aggregate text NOT NULL, segment integer NOT NULL);
CREATE TABLE pulse (beat bigint NOT NULL);
INSERT INTO pulse VALUES (0);`;

const settings = { wal_level: "logical", max_connections: 100, max_wal_size: "512MB", log_min_messages: "warning" };

export async function createGround(version: PostgresVersion, aggregates: readonly string[]): Promise<Ground> {
  const server = await startPostgres({ version, settings });
  const url = server.url();
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  pool.on("error", () => undefined);
  const store = postgres({ url, connections: 2 });
  try {
    await store.schema.migrate();
    await pool.query(tables);
    await pool.query("INSERT INTO locks SELECT unnest($1::text[])", [aggregates]);
  } catch (error) {
    await server[Symbol.asyncDispose]();
    throw error;
  }
  const sql: Ground["sql"] = async (text, values = []) => (await pool.query<Record<string, unknown>>(text, [...values])).rows;
  const ids = (rows: readonly Record<string, unknown>[]): readonly string[] => rows.map(({ id }) => String(id));
  const ms = (value: unknown): number | null => (value === null ? null : Number(value));
  return {
    ...{ server, store, url, sql },
    async committed(segment) {
      const rows = await sql(
        `SELECT l.id, l.aggregate, o.seq, extract(epoch FROM o.created_at) * 1000 AS inserted, extract(epoch FROM o.available_at) * 1000 AS due
         FROM ledger l LEFT JOIN outbox o USING (id) WHERE l.segment = $1`,
        [segment],
      );
      return {
        vanished: ids(rows.filter(({ seq }) => seq === null)),
        events: rows.map((row) => ({
          ...{ id: String(row["id"]), aggregate: String(row["aggregate"]), seq: Number(row["seq"]) },
          ...{ insertedAt: Number(row["inserted"]), dueAt: ms(row["due"]) },
        })),
      };
    },
    async rows() {
      const states = await sql("SELECT id, state FROM outbox_events WHERE state <> 'PUBLISHED' ORDER BY seq LIMIT 1000");
      const invented = await sql("SELECT id FROM outbox o WHERE NOT EXISTS (SELECT 1 FROM ledger l WHERE l.id = o.id) LIMIT 1000");
      const slots = await sql("SELECT slot_name AS id FROM pg_replication_slots ORDER BY 1");
      const knows = await sql(
        "SELECT 1 FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'waybill_tail' AND column_name = 'slot'",
      );
      const known = knows.length === 0 ? null : (await sql("SELECT slot FROM waybill_tail"))[0];
      return {
        states: new Map(states.map(({ id, state }) => [String(id), String(state)])),
        invented: ids(invented),
        slots: ids(slots),
        ...(knows.length === 0 ? {} : { knownSlot: (known?.["slot"] ?? null) as string | null }),
      };
    },
    async forget(segment) {
      await store.operator.purge(new Date(), { who: "play", dryRun: false });
      await sql("DELETE FROM ledger l WHERE segment <= $1 AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.id = l.id)", [segment]);
    },
    async [Symbol.asyncDispose]() {
      await store[Symbol.asyncDispose]();
      await pool.end().catch(() => undefined);
      await server[Symbol.asyncDispose]();
    },
  };
}
