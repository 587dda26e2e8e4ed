/** What differs between the quick starts: one broker each, and Drizzle or Prisma. */
export interface Stack {
  /** The page's file in `docs`. */
  readonly page: string;
  readonly broker: Broker;
  readonly library: Library;
  /** Brokers that the same page serves with other words in three places, which it names. */
  readonly others?: readonly Broker[];
}

export interface Broker {
  readonly title: string;
  /** The page on this broker. */
  readonly page: string;
  /** Its name under `waybill/`, and the function's. */
  readonly factory: string;
  /** The client with the version that our tests run with. */
  readonly client: string;
  readonly node: string;
  readonly url: string;
  /** Its service in the compose file. */
  readonly compose: string;
}

interface Library {
  readonly title: string;
  readonly packages: string;
  readonly tools: string;
  /** What has to be generated before the programs run, as a part of the page. */
  readonly prepare: string;
  readonly orders: string;
  readonly shipping: string;
  readonly explained: string;
}

const rabbitmq: Broker = {
  title: "RabbitMQ",
  page: "rabbitmq.md",
  factory: "rabbitmq",
  client: "amqplib@2",
  node: "`amqplib` 2 runs on Node 18 and later",
  url: "amqp://guest:guest@localhost:5672",
  compose: `  rabbitmq:
    image: rabbitmq:3
    ports: ["127.0.0.1:5672:5672"]
    healthcheck: { test: ["CMD", "rabbitmq-diagnostics", "-q", "check_running"], interval: 5s, retries: 20 }`,
};

const jetstream: Broker = {
  title: "NATS JetStream",
  page: "nats.md",
  factory: "nats",
  client: "@nats-io/transport-node@3",
  node: "`@nats-io/transport-node` 3 runs on Node 20 and later; npm may warn that a package of it asks for Node 22",
  url: "nats://localhost:4222",
  compose: `  nats:
    image: nats:2
    command: ["--jetstream", "--store_dir", "/data"]
    ports: ["127.0.0.1:4222:4222"]`,
};

const kafka: Broker = {
  title: "Kafka",
  page: "kafka.md",
  factory: "kafka",
  client: "@platformatic/kafka@1",
  node: "`@platformatic/kafka` 1 runs on Node 20.19 and later, its version 2 on Node 22.22 and later",
  url: "kafka://localhost:9092",
  compose: `  kafka:
    image: apache/kafka:4.1.1
    ports: ["127.0.0.1:9092:9092"]`,
};

const redis: Broker = {
  title: "Redis Streams",
  page: "redis.md",
  factory: "redis",
  client: "ioredis@5",
  node: "`ioredis` 5 runs on Node 20 and later",
  url: "redis://localhost:6379/0",
  compose: `  redis:
    image: redis:7
    command: ["redis-server", "--appendonly", "yes", "--appendfsync", "always"]
    ports: ["127.0.0.1:6379:6379"]`,
};

const drizzle: Library = {
  title: "Drizzle",
  packages: "pg@8 drizzle-orm@0.45",
  tools: "@types/pg@8",
  prepare: "",
  orders: `import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { drizzle } from "drizzle-orm/node-postgres";
import { integer, pgTable, text } from "drizzle-orm/pg-core";
import pg from "pg";
import { createOutbox } from "waybill";
import { fromDrizzle } from "waybill/handles";
import { postgres } from "waybill/postgres";

const orders = pgTable("orders", { id: text().primaryKey(), total: integer().notNull() });
const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] });
pool.on("error", (error) => console.error(error.message)); // an idle connection was lost; the pool opens another
const db = drizzle(pool);
await db.execute("CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, total integer NOT NULL)");

const outbox = createOutbox({ store: postgres({ pool }), tx: fromDrizzle });

async function placeOrder(total: number): Promise<string> {
  const id = randomUUID();
  await db.transaction(async (tx) => {
    await tx.insert(orders).values({ id, total });
    await outbox.add(tx, { aggregateType: "Order", aggregateId: id, type: "OrderPlaced", payload: { total } });
  });
  return id;
}
`,
  shipping: `import { drizzle } from "drizzle-orm/node-postgres";
import { pgTable, serial, text } from "drizzle-orm/pg-core";
import pg from "pg";
import { createSubscriber } from "waybill";
import { fromDrizzle } from "waybill/handles";
import { BROKER } from "waybill/BROKER";
import { postgres } from "waybill/postgres";

const parcels = pgTable("parcels", { id: serial().primaryKey(), orderId: text("order_id").notNull() });
const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] });
pool.on("error", (error) => console.error(error.message)); // an idle connection was lost; the pool opens another
const db = drizzle(pool);
await db.execute("CREATE TABLE IF NOT EXISTS parcels (id serial PRIMARY KEY, order_id text NOT NULL)");

const shipping = createSubscriber({
  consumer: "shipping",
  source: BROKER({ url: process.env["BROKER_URL"]! }),
  inbox: postgres({ pool, tx: fromDrizzle, db }),
  topics: ["order.events"],
  handlers: {
    OrderPlaced: async (event, tx) => {
      await tx.insert(parcels).values({ orderId: event.aggregateId });
      console.log(\`parcel for order \${event.aggregateId}\`);
    },
  },
});
`,
  explained:
    "`tx` is Drizzle's own transaction. Other libraries than Drizzle are on the page [transactions](transactions.md), and [the same quick start with\nPrisma](quick-start-prisma.md) is a page of its own.",
};

const prisma: Library = {
  title: "Prisma",
  packages: "pg@8 @prisma/client@7 @prisma/adapter-pg@7",
  tools: "prisma@7",
  prepare: `## 4. The Prisma client

\`\`\`prisma prisma/schema.prisma
generator client {
  provider = "prisma-client"
  output   = "../generated/prisma"
}

datasource db {
  provider = "postgresql"
}

model Order {
  id    String @id
  total Int

  @@map("orders")
}

model Parcel {
  id      Int    @id @default(autoincrement())
  orderId String @map("order_id")

  @@map("parcels")
}
\`\`\`

\`\`\`sh
npx prisma generate
\`\`\`

To keep this page short, the programs create their two tables themselves. In your project, \`prisma migrate\` does; [migration
tools](migration-tools.md) shows how Waybill's tables get into the same migrations.

`,
  orders: `import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { PrismaPg } from "@prisma/adapter-pg";
import { createOutbox } from "waybill";
import { fromPrisma } from "waybill/handles";
import { postgres } from "waybill/postgres";
import { PrismaClient } from "./generated/prisma/client.ts";

const url = process.env["DATABASE_URL"]!;
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
await prisma.$executeRaw\`CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, total integer NOT NULL)\`;

const outbox = createOutbox({ store: postgres({ url }), tx: fromPrisma });

async function placeOrder(total: number): Promise<string> {
  const id = randomUUID();
  await prisma.$transaction(async (tx) => {
    await tx.order.create({ data: { id, total } });
    await outbox.add(tx, { aggregateType: "Order", aggregateId: id, type: "OrderPlaced", payload: { total } });
  });
  return id;
}
`,
  shipping: `import { PrismaPg } from "@prisma/adapter-pg";
import { createSubscriber } from "waybill";
import { fromPrisma } from "waybill/handles";
import { BROKER } from "waybill/BROKER";
import { postgres } from "waybill/postgres";
import { PrismaClient } from "./generated/prisma/client.ts";

const url = process.env["DATABASE_URL"]!;
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
await prisma.$executeRaw\`CREATE TABLE IF NOT EXISTS parcels (id serial PRIMARY KEY, order_id text NOT NULL)\`;

const shipping = createSubscriber({
  consumer: "shipping",
  source: BROKER({ url: process.env["BROKER_URL"]! }),
  inbox: postgres({ url, tx: fromPrisma, db: prisma }),
  topics: ["order.events"],
  handlers: {
    OrderPlaced: async (event, tx) => {
      await tx.parcel.create({ data: { orderId: event.aggregateId } });
      console.log(\`parcel for order \${event.aggregateId}\`);
    },
  },
});
`,
  explained: "`tx` is the client of Prisma's interactive transaction. Other libraries are on the page [transactions](transactions.md).",
};

/** Every quick start on PostgreSQL. */
export const stacks: readonly Stack[] = [
  { page: "quick-start-rabbitmq.md", broker: rabbitmq, library: drizzle },
  { page: "quick-start-jetstream.md", broker: jetstream, library: drizzle },
  { page: "quick-start-kafka.md", broker: kafka, library: drizzle },
  { page: "quick-start-redis.md", broker: redis, library: drizzle },
  { page: "quick-start-prisma.md", broker: rabbitmq, library: prisma, others: [jetstream, kafka, redis] },
];
