import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { fromPrisma } from "../../../src/outbox/handles/index.ts";
import { adapter, type Adapter, type Database } from "../adapter.ts";
import type { Missing } from "../optional.ts";

const require = createRequire(import.meta.url);

/** As much of a generated client as is used here. */
interface Client {
  /** Not inside a transaction of the first versions of 7. */
  $transaction?<T>(work: (tx: Client) => Promise<T>): Promise<T>;
  $executeRawUnsafe(sql: string): Promise<number>;
  $disconnect(): Promise<void>;
}

const kinds = {
  PostgreSQL: {
    provider: "postgresql",
    package: "@prisma/adapter-pg",
    make: "PrismaPg",
    options: (url: string) => ({ connectionString: url }),
  },
  MariaDB: {
    provider: "mysql",
    package: "@prisma/adapter-mariadb",
    make: "PrismaMariaDb",
    options: (url: string) => url.replace("mysql:", "mariadb:"),
  },
  SQLite: {
    provider: "sqlite",
    package: "@prisma/adapter-libsql",
    make: "PrismaLibSql",
    options: (path: string) => ({ url: `file:${path}` }),
  },
} as const;

export async function prismaOn(database: Exclude<Database, "MySQL">): Promise<Adapter | Missing> {
  const { provider, package: name, make, options } = kinds[database];
  let PrismaClient: new (options: object) => Client;
  let Driver: new (options: unknown) => object;
  try {
    Driver = (require(name) as Record<string, typeof Driver>)[make]!;
    ({ PrismaClient } = require(await generate(provider)) as { PrismaClient: typeof PrismaClient });
  } catch (error) {
    return { library: "Prisma", database, why: (error as Error).message.split("\n")[0]! };
  }
  return adapter({
    library: "Prisma",
    database,
    handle: fromPrisma,
    refuses: { none: true, ended: true },
    async open(place) {
      const db = new PrismaClient({ adapter: new Driver(options(place)), transactionOptions: { maxWait: 60_000, timeout: 60_000 } });
      return {
        db,
        none: { "the client": db },
        transaction: (work) => db.$transaction!(work),
        savepoint,
        run: (tx: Client, sql) => tx.$executeRawUnsafe(sql),
        close: () => db.$disconnect(),
      };
    },
  });
}

async function savepoint(tx: Client, work: (inner: Client) => Promise<void>): Promise<void> {
  if (tx.$transaction !== undefined) return tx.$transaction(work);
  await tx.$executeRawUnsafe("SAVEPOINT inner_one");
  try {
    await work(tx);
  } catch (error) {
    await tx.$executeRawUnsafe("ROLLBACK TO SAVEPOINT inner_one");
    throw error;
  }
}

/** Makes a client of a schema, as `prisma generate` does. */
async function generate(provider: string): Promise<string> {
  // Two files of tests may make theirs at once.
  const name = `${provider}-${process.env["VITEST_POOL_ID"] ?? 0}`;
  const folder = fileURLToPath(new URL(`../../../.cache/prisma/${name}`, import.meta.url));
  mkdirSync(folder, { recursive: true });
  const schema = join(folder, "schema.prisma");
  writeFileSync(
    schema,
    `generator client {\n  provider = "prisma-client-js"\n  output = "./client"\n}\ndatasource db {\n  provider = "${provider}"\n}\nmodel Thing {\n  id Int @id\n}\n`,
  );
  const command = join(dirname(require.resolve("prisma/package.json")), "build/index.js");
  // It would download an engine that only migrations need; any program in its place keeps it from that.
  const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: "1" };
  await promisify(execFile)(process.execPath, [command, "generate", "--schema", schema], { env });
  return join(folder, "client");
}
