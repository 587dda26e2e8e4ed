import type { StarterLibrary, StoreStarter } from "../../contracts/starter.ts";
import { both, createTable, insertThrough, knexLibrary, typeormLibrary } from "../kit/starter.ts";

const columns = { orders: "id varchar(64) PRIMARY KEY, total integer NOT NULL", parcels: "order_id varchar(64) PRIMARY KEY" };
const client = 'import { createPool } from "mysql2/promise";';
const created = createTable("await pool.query", columns);

const own: StarterLibrary = {
  word: "mysql2",
  packages: [],
  imports: both(client),
  open: ["const pool = createPool(config.store);"],
  db: "pool",
  options: "{ pool }",
  handle: null,
  table: created,
  insert: {
    orders: 'await tx.query("INSERT INTO orders (id, total) VALUES (?, ?)", [order.id, order.total]);',
    parcels: 'await tx.query("INSERT INTO parcels (order_id) VALUES (?)", [event.aggregateId]);',
  },
  close: "await pool.end();",
};

const fromMysql2 = 'import { drizzle } from "drizzle-orm/mysql2";';
const drizzle: StarterLibrary = {
  ...own,
  word: "drizzle",
  packages: ["drizzle-orm"],
  imports: {
    orders: ['import { int, mysqlTable, varchar } from "drizzle-orm/mysql-core";', fromMysql2, client],
    parcels: ['import { mysqlTable, varchar } from "drizzle-orm/mysql-core";', fromMysql2, client],
  },
  open: [...own.open, "const db = drizzle(pool);"],
  db: "db",
  handle: "fromDrizzle",
  table: {
    orders: [
      'const orders = mysqlTable("orders", { id: varchar("id", { length: 64 }).primaryKey(), total: int("total").notNull() });',
      ...created.orders,
    ],
    parcels: ['const parcels = mysqlTable("parcels", { orderId: varchar("order_id", { length: 64 }).primaryKey() });', ...created.parcels],
  },
  insert: {
    orders: "await tx.insert(orders).values(order);",
    parcels: "await tx.insert(parcels).values({ orderId: event.aggregateId });",
  },
};

/** Kysely takes the pool of callbacks, and the store that of promises. */
const kysely: StarterLibrary = {
  ...own,
  word: "kysely",
  packages: ["kysely"],
  imports: both('import { Kysely, MysqlDialect } from "kysely";', 'import { createPool } from "mysql2";'),
  open: [...own.open, "const db = new Kysely({ dialect: new MysqlDialect({ pool }) });"],
  db: "db",
  options: "{ pool: pool.promise() }",
  handle: "fromKysely",
  table: createTable("await pool.promise().query", columns),
  insert: insertThrough.kysely,
  close: "await db.destroy(); // and the pool with it",
};

export const starter: StoreStarter = {
  word: "mysql",
  packages: ["mysql2"],
  url: "mysql://shop:shop@127.0.0.1:3306/shop",
  service: {
    lines: [
      "image: mariadb:10.11",
      "environment: { MARIADB_USER: shop, MARIADB_PASSWORD: shop, MARIADB_DATABASE: shop, MARIADB_RANDOM_ROOT_PASSWORD: 1 }",
      'ports: ["127.0.0.1:3306:3306"]',
      "healthcheck:",
      '  test: ["CMD", "healthcheck.sh", "--connect", "--innodb_initialized"]',
      "  interval: 2s",
      "  retries: 30",
    ],
    data: "/var/lib/mysql",
  },
  libraries: [own, drizzle, kysely, knexLibrary("mysql2", columns), typeormLibrary("mysql", columns, own.insert)],
};
