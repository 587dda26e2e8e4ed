import pg from "pg";
import { postgres } from "../../src/stores/postgres/index.ts";
import type { Adapter } from "../handles/adapter.ts";
import type { AnyHandle } from "../handles/body.ts";
import { counted, texts, type Ground, type Keeping } from "./ground.ts";

let made = 0;

/** `{ url }` and `{ pool }` use pg itself; any other way is a library. */
export async function postgresGround(url: string, way: "url" | "pool" | Adapter, keeping: Keeping = {}): Promise<Ground> {
  const schema = `composed_${process.pid}_${++made}`;
  const name = `${schema}_side`;
  const side = new pg.Pool({ connectionString: url, max: 4, application_name: name });
  side.on("error", () => undefined);
  // What is counted as left behind is told by the schema in its search path or its name: the database is shared by other grounds.
  const pool = new pg.Pool({ connectionString: url, max: 12, application_name: schema });
  pool.on("error", () => undefined);
  const clients: pg.PoolClient[] = [];
  pool.on("connect", (client) => clients.push(client));
  const own = new URL(url);
  own.searchParams.set("application_name", schema);
  const placed = { schema, ...keeping };
  const store = way === "url" ? postgres({ url: own.href, ...placed }) : postgres({ pool, ...placed });
  await store.schema.migrate();
  await side.query(
    `CREATE TABLE ${schema}.effects (pos bigserial, name text NOT NULL); CREATE TABLE ${schema}.scratch (name text NOT NULL)`,
  );
  const library = typeof way === "string" ? null : await way.open(own.href);
  const handle = typeof way === "string" ? undefined : (way.handle as AnyHandle);
  const through = library === null ? store : postgres({ url: own.href, ...placed, tx: handle!, db: library.db });
  const { outbox, hints } = counted(store, handle);
  const plain = async <T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> => {
    const client = await side.connect();
    try {
      await client.query("BEGIN");
      const result = await work(client);
      await client.query("COMMIT");
      return result;
    } catch (error) {
      await client.query("ROLLBACK");
      throw error;
    } finally {
      client.release();
    }
  };
  const end = async (): Promise<void> => {
    if (through !== store) await through[Symbol.asyncDispose]();
    await library?.close();
    await store[Symbol.asyncDispose]();
  };
  let ended: Promise<void> | null = null;
  return {
    store: through,
    relayed: store,
    outbox,
    hints,
    transaction: (work) => (library === null ? plain((client) => work(client, outbox)) : library.transaction((tx) => work(tx, outbox))),
    run: (tx, sql) => (library === null ? (tx as pg.PoolClient).query(inSchema(sql, schema)) : library.run(tx, inSchema(sql, schema))),
    read: async (sql) => texts((await side.query(inSchema(sql, schema))).rows as Record<string, unknown>[]),
    ...(way === "pool" && {
      listeners: () => clients.map((client) => client.eventNames().reduce((sum, name) => sum + client.listenerCount(name), 0)),
    }),
    async connections() {
      if (!pool.ending) await pool.end();
      const { rows } = await side.query<{ n: number }>("SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = $1", [
        schema,
      ]);
      return rows[0]!.n;
    },
    end: () => (ended ??= end()),
    async close() {
      await (ended ??= end());
      await side.query(`DROP SCHEMA ${schema} CASCADE`);
      await side.end();
      if (!pool.ending) await pool.end();
    },
  };
}

const inSchema = (sql: string, schema: string): string =>
  sql.replaceAll(/\b(effects|scratch_rows|scratch|made|inbox|outbox_events|outbox|waybill_\w+)\b/g, `${schema}.$1`);
