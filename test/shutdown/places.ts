import pg from "pg";
import { createPool } from "mysql2/promise";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import { nats } from "../../src/brokers/nats/index.ts";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { redis } from "../../src/brokers/redis/index.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import type { Source } from "../../src/contracts/source.ts";
import type { Store } from "../../src/contracts/store.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { memory } from "../../src/stores/memory/index.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";

/** A store of Waybill's own connections, and the service's own connection to the same database. */
export interface Database {
  readonly store: Store<never, unknown>;
  readonly db: never;
  /** Closes what the service opened, and nothing of Waybill's. */
  close(): Promise<void>;
}

type Broker = Sink & Source & { provision(topics: readonly string[], consumers?: readonly string[]): Promise<void> };

const database = (store: object, db: object, close: () => unknown): Database => ({
  store: store as Database["store"],
  db: db as never,
  close: async () => void (await close()),
});

/** By name; `place` is a URL or a file. */
export const databases = {
  async postgres(place: string) {
    const pool = new pg.Pool({ connectionString: place, max: 2 });
    return database(postgres({ url: place, listen: true }), pool, () => pool.end());
  },
  /** The store has no connections but those of the service's pool. */
  async "postgres, the service's pool"(place: string) {
    const pool = new pg.Pool({ connectionString: place });
    return database(postgres({ pool, listen: true }), pool, async () => {
      await pool.query("SELECT 1"); // nobody has closed it
      await pool.end();
    });
  },
  async mariadb(place: string) {
    const pool = createPool(place);
    return database(mysql({ url: place }), pool, () => pool.end());
  },
  async "mariadb, the service's pool"(place: string) {
    const pool = createPool(place);
    return database(mysql({ pool }), pool, async () => {
      await pool.query("SELECT 1");
      await pool.end();
    });
  },
  async sqlite(place: string) {
    const db = (await defaultDriver())(place);
    return database(sqlite({ path: place }), db, () => db.close());
  },
  async memory() {
    const store = memory();
    return database(store, store.db, () => undefined);
  },
} satisfies Record<string, (place: string) => Promise<Database>>;

export const brokers = {
  kafka: (url: string) => kafka({ url, provision: true, partitions: 2 }),
  rabbitmq: (url: string) => rabbitmq({ url, provision: true }),
  nats: (url: string) => nats({ url, provision: true }),
  redis: (url: string) => redis({ url, provision: true }),
  embedded: (path: string) => embedded({ path }),
  memory: () => memoryBroker(),
} satisfies Record<string, (place: string) => Broker>;

export type DatabaseName = keyof typeof databases;
export type BrokerName = keyof typeof brokers;
