import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createPool, type RowDataPacket } from "mysql2/promise";
import pg from "pg";
import { memoryBroker, type MemoryBroker } from "../../src/brokers/memory/index.ts";
import type { SqlWriter } from "../../src/contracts/handle.ts";
import type { Store } from "../../src/contracts/store.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createWake } from "../../src/core/wake.ts";
import { defaultDriver, type SqliteDatabase } from "../../src/drivers/sqlite/driver.ts";
import { createOutbox, type Outbox } from "../../src/outbox/outbox.ts";
import { mysql, type MysqlStore } from "../../src/stores/mysql/index.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { createSubscriber, type SubscriberOptions } from "../../src/subscriber/subscriber.ts";
import type { Service } from "../../src/core/service.ts";
import type { Adapter } from "../handles/adapter.ts";
import type { AnyHandle } from "../handles/body.ts";

/** A database with Waybill's tables and a table `effects (name)`, where a subscriber applies events by one way of reaching it. */
export interface Ground {
  readonly store: Pick<Store<unknown, unknown>, "inbox" | "letters">;
  readonly outbox: Outbox<unknown, unknown>;
  /** How often the relay was woken. */
  readonly hints: () => number;
  /** A statement of the handler's, in its transaction. */
  run(tx: unknown, sql: string): PromiseLike<unknown>;
  /** A statement by another way, which answers rows as lists of text. */
  read(sql: string): Promise<readonly (readonly string[])[]>;
  /** Each client of a pool that the test gave, and how many listeners it has. */
  readonly listeners?: () => readonly number[];
  close(): Promise<void>;
}

type OutboxStore = Pick<Store<unknown, unknown>, "wake" | "transactor"> & { readonly writer: SqlWriter };

function counted(store: unknown, handle?: AnyHandle): Pick<Ground, "outbox" | "hints"> {
  const wake = createWake();
  let hints = 0;
  const counting = { ...wake, notify: () => void hints++ };
  const own = { ...(store as OutboxStore), wake: counting };
  const outbox = handle === undefined ? createOutbox({ store: own as never }) : createOutbox({ store: own, tx: handle });
  return { outbox: outbox, hints: () => hints };
}

const texts = (rows: readonly Readonly<Record<string, unknown>>[]): readonly (readonly string[])[] =>
  rows.map((row) => Object.values(row).map(String));

let made = 0;

export async function postgresGround(url: string, way: "url" | "pool" | Adapter): Promise<Ground> {
  const schema = `composed_${process.pid}_${++made}`;
  const side = new pg.Pool({ connectionString: url, max: 4 });
  side.on("error", () => undefined);
  const pool = new pg.Pool({ connectionString: url, max: 12 });
  pool.on("error", () => undefined);
  const clients: pg.PoolClient[] = [];
  pool.on("connect", (client) => clients.push(client));
  const store = way === "url" ? postgres({ url, schema }) : postgres({ pool, schema });
  await store.schema.migrate();
  await side.query(`CREATE TABLE ${schema}.effects (name text NOT NULL); CREATE TABLE ${schema}.scratch (name text NOT NULL)`);
  const read: Ground["read"] = async (sql) => texts((await side.query(inSchema(sql, schema))).rows as Record<string, unknown>[]);
  const close = async (): Promise<void> => {
    await store[Symbol.asyncDispose]();
    await side.query(`DROP SCHEMA ${schema} CASCADE`);
    await Promise.all([side.end(), pool.end()]);
  };
  if (typeof way === "string")
    return {
      store,
      ...counted(store),
      run: (tx, sql) => (tx as pg.PoolClient).query(inSchema(sql, schema)),
      read,
      ...(way === "pool" && {
        listeners: () => clients.map((client) => client.eventNames().reduce((sum, name) => sum + client.listenerCount(name), 0)),
      }),
      close,
    };
  const handle = way.handle as AnyHandle;
  const library = await way.open(url);
  const through = postgres({ url, schema, tx: handle, db: library.db });
  return {
    store: through,
    ...counted(store, handle),
    run: (tx, sql) => library.run(tx, inSchema(sql, schema)),
    read,
    close: async () => {
      await through[Symbol.asyncDispose]();
      await library.close();
      await close();
    },
  };
}

const inSchema = (sql: string, schema: string): string =>
  sql.replaceAll(/\b(effects|scratch_rows|scratch|made|inbox|outbox|waybill_\w+)\b/g, `${schema}.$1`);

export async function mariadbGround(url: (database?: string) => string, way: "url" | "pool" | Adapter): Promise<Ground> {
  const database = `composed_${process.pid}_${++made}`;
  const root = createPool({ uri: url("mysql"), connectionLimit: 2 });
  await root.query(`CREATE DATABASE ${database}`);
  const side = createPool({ uri: url(database), connectionLimit: 4 });
  const pool = createPool({ uri: url(database), connectionLimit: 12 });
  const store: MysqlStore = way === "url" ? mysql({ url: url(database) }) : mysql({ pool });
  await store.schema.migrate();
  await side.query("CREATE TABLE effects (name varchar(255) NOT NULL)");
  await side.query("CREATE TABLE scratch (name varchar(255) NOT NULL)");
  const read: Ground["read"] = async (sql) =>
    texts([(await side.query<RowDataPacket[]>(sql))[0]].flat().filter((row) => "fieldCount" in row === false));
  const close = async (): Promise<void> => {
    await store[Symbol.asyncDispose]();
    await root.query(`DROP DATABASE ${database}`);
    await Promise.all([root.end(), side.end(), pool.end()]);
  };
  if (typeof way === "string") return { store, ...counted(store), run: (tx, sql) => (tx as typeof pool).query(sql), read, close };
  const handle = way.handle as AnyHandle;
  const library = await way.open(url(database));
  const through = mysql({ url: url(database), tx: handle, db: library.db });
  return {
    store: through,
    ...counted(store, handle),
    run: (tx, sql) => library.run(tx, sql),
    read,
    close: async () => {
      await through[Symbol.asyncDispose]();
      await library.close();
      await close();
    },
  };
}

export async function sqliteGround(): Promise<Ground> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-"));
  const path = join(folder, "app.db");
  const store = sqlite({ path });
  await store.schema.migrate();
  const db = (await defaultDriver())(path);
  db.exec("CREATE TABLE effects (name text NOT NULL); CREATE TABLE scratch (name text NOT NULL)");
  return {
    store,
    ...counted(store),
    run: async (tx, sql) => (tx as SqliteDatabase).exec(sql),
    read: async (sql) => texts(db.prepare(sql).all() as Record<string, unknown>[]),
    close: async () => {
      db.close();
      await store[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    },
  };
}

const topic = "order.events";

/** A subscriber on the ground, which is given `count` events of as many aggregates, numbered from 0 by their aggregate id. */
export async function subscribed(
  ground: Ground,
  options: Pick<SubscriberOptions<unknown>, "batch" | "concurrency" | "retry" | "handlers" | "batchHandlers" | "handlerTimeoutMs">,
  count: number,
): Promise<{ readonly broker: MemoryBroker; readonly service: Service; readonly events: readonly PathEvent[]; settled(): number }> {
  const broker = memoryBroker();
  const sent = Array.from({ length: count }, (_, n) => ({
    topic,
    source: "/test",
    envelope: {
      id: `e-${n}`,
      seq: BigInt(n + 1),
      aggregateType: "Order",
      aggregateId: String(n),
      type: "OrderPlaced",
      eventVersion: 1,
      data: Buffer.from("{}"),
      contentType: "application/json",
      headers: {},
      idempotencyKey: null,
      createdAt: new Date(1_000),
    },
  }));
  await broker.publish(sent, new AbortController().signal);
  const events: PathEvent[] = [];
  const service = createSubscriber<unknown>({
    consumer: "stock",
    source: broker,
    inbox: ground.store,
    topics: [topic],
    retry: { delaysMs: [5, 5] },
    observe: (event) => void events.push(event),
    ...options,
  });
  await service.start();
  const settled = (): number =>
    new Set(events.flatMap((event) => (event.type === "subscriber.handled" || event.type === "subscriber.died" ? [event.id] : []))).size;
  return { broker, service, events, settled };
}
