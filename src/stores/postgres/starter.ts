import type { StarterLibrary, StoreStarter } from "../../contracts/starter.ts";
import { both, createTable, insertThrough, knexLibrary, typeormLibrary } from "../kit/starter.ts";

const columns = { orders: "id text PRIMARY KEY, total integer NOT NULL", parcels: "order_id text PRIMARY KEY" };
const client = 'import pg from "pg";';
const pool = [
  "const pool = new pg.Pool({ connectionString: config.store });",
  'pool.on("error", (error) => console.error(error.message)); // an idle connection was lost; the pool opens another',
];
const created = createTable("await pool.query", columns);

const own: StarterLibrary = {
  word: "pg",
  packages: [],
  imports: both(client),
  open: pool,
  db: "pool",
  options: "{ pool }",
  handle: null,
  table: created,
  insert: {
    orders: 'await tx.query("INSERT INTO orders (id, total) VALUES ($1, $2)", [order.id, order.total]);',
    parcels: 'await tx.query("INSERT INTO parcels (order_id) VALUES ($1)", [event.aggregateId]);',
  },
  close: "await pool.end();",
};

const fromNodePostgres = 'import { drizzle } from "drizzle-orm/node-postgres";';
const drizzle: StarterLibrary = {
  ...own,
  word: "drizzle",
  packages: ["drizzle-orm"],
  imports: {
    orders: [fromNodePostgres, 'import { integer, pgTable, text } from "drizzle-orm/pg-core";', client],
    parcels: [fromNodePostgres, 'import { pgTable, text } from "drizzle-orm/pg-core";', client],
  },
  open: [...pool, "const db = drizzle(pool);"],
  db: "db",
  handle: "fromDrizzle",
  table: {
    orders: ['const orders = pgTable("orders", { id: text("id").primaryKey(), total: integer("total").notNull() });', ...created.orders],
    parcels: ['const parcels = pgTable("parcels", { orderId: text("order_id").primaryKey() });', ...created.parcels],
  },
  insert: {
    orders: "await tx.insert(orders).values(order);",
    parcels: "await tx.insert(parcels).values({ orderId: event.aggregateId });",
  },
};

const kysely: StarterLibrary = {
  ...own,
  word: "kysely",
  packages: ["kysely"],
  imports: both('import { Kysely, PostgresDialect } from "kysely";', client),
  open: [...pool, "const db = new Kysely({ dialect: new PostgresDialect({ pool }) });"],
  db: "db",
  handle: "fromKysely",
  insert: insertThrough.kysely,
  close: "await db.destroy(); // and the pool with it",
};

/** Prisma's older generator writes JavaScript, which every Node runs; the newer one writes TypeScript. Its pool is its own, so the store has another one. */
const prisma: StarterLibrary = {
  word: "prisma",
  packages: ["@prisma/client", "@prisma/adapter-pg", "prisma"],
  imports: both('import { PrismaPg } from "@prisma/adapter-pg";', 'import { PrismaClient } from "./generated/prisma/index.js";'),
  open: ["const db = new PrismaClient({ adapter: new PrismaPg({ connectionString: config.store }) });"],
  db: "db",
  options: "{ url: config.store }",
  handle: "fromPrisma",
  table: createTable("await db.$executeRawUnsafe", columns),
  insert: {
    orders: "await tx.order.create({ data: order });",
    parcels: "await tx.parcel.create({ data: { orderId: event.aggregateId } });",
  },
  close: "await db.$disconnect();",
  generated: {
    file: "prisma/schema.prisma",
    lines: [
      "generator client {",
      '  provider = "prisma-client-js"',
      '  output   = "../generated/prisma"',
      "}",
      "",
      "datasource db {",
      '  provider = "postgresql"',
      "}",
      "",
      "model Order {",
      "  id    String @id",
      "  total Int",
      "",
      '  @@map("orders")',
      "}",
      "",
      "model Parcel {",
      '  orderId String @id @map("order_id")',
      "",
      '  @@map("parcels")',
      "}",
    ],
    run: "npx prisma generate",
  },
};

export const starter: StoreStarter = {
  word: "postgres",
  packages: ["pg"],
  url: "postgres://shop:shop@127.0.0.1:5432/shop",
  service: {
    lines: [
      "image: postgres:18",
      "environment: { POSTGRES_USER: shop, POSTGRES_PASSWORD: shop, POSTGRES_DB: shop }",
      'ports: ["127.0.0.1:5432:5432"]',
      "healthcheck:",
      '  test: ["CMD", "pg_isready", "--username=shop", "--host=127.0.0.1"]',
      "  interval: 2s",
      "  retries: 30",
    ],
    data: "/var/lib/postgresql",
  },
  libraries: [own, drizzle, kysely, knexLibrary("pg", columns), typeormLibrary("postgres", columns, own.insert), prisma],
};
