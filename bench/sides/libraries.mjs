// Clients and libraries, each with its own transactions and one row of the service's own in them.
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const require = createRequire(import.meta.url);

/**
 * Each opens its connections and returns `transaction`, `work` (its insert into the work table), `byHand` (any other insert, with `?` for
 * its values) where it is measured, and the `handle` that the outbox takes.
 */
export const libraries = {
  async pg({ url, max, table }) {
    const { default: pg } = await import("pg");
    const pool = new pg.Pool({ connectionString: url, max });
    return {
      handle: "fromPg",
      transaction: async (work) => {
        const client = await pool.connect();
        await client.query("BEGIN");
        await work(client);
        await client.query("COMMIT");
        client.release();
      },
      work: (tx, id) => tx.query(`INSERT INTO ${table} VALUES ($1, 'placed')`, [id]),
      byHand: (tx, text, values) => tx.query(numbered(text), values),
    };
  },

  async mysql2({ url, max, table }) {
    const { createPool } = await import("mysql2/promise");
    const pool = createPool({ uri: url, connectionLimit: max });
    return {
      handle: "fromMysql2",
      transaction: async (work) => {
        const connection = await pool.getConnection();
        await connection.beginTransaction();
        await work(connection);
        await connection.commit();
        connection.release();
      },
      work: (tx, id) => tx.execute(`INSERT INTO ${table} VALUES (?, 'placed')`, [id]),
      byHand: (tx, text, values) => tx.execute(text, values),
    };
  },

  /** One connection and one transaction at a time: a file has one writer. The outbox takes the client itself. */
  async sqlite({ file, table }) {
    const statements = new Map();
    const prepared = (text) => statements.get(text) ?? statements.set(text, file.prepare(text)).get(text);
    return {
      handle: null,
      transaction: async (work) => {
        prepared("BEGIN IMMEDIATE").run();
        work(file);
        prepared("COMMIT").run();
        await turn(); // as between two requests of a service: a client frees its statements then
      },
      work: (_, id) => prepared(`INSERT INTO ${table} VALUES (?, 'placed')`).run(id),
      byHand: (_, text, values) => prepared(text).run(...values),
    };
  },

  async drizzle({ url, max, table }) {
    const [{ drizzle }, { sql }, { default: pg }] = [
      await import("drizzle-orm/node-postgres"),
      await import("drizzle-orm"),
      await import("pg"),
    ];
    const db = drizzle(new pg.Pool({ connectionString: url, max }));
    return {
      handle: "fromDrizzle",
      transaction: (work) => db.transaction(work),
      work: (tx, id) => tx.execute(sql`INSERT INTO ${sql.raw(table)} VALUES (${id}, 'placed')`),
      byHand: (tx, text, values) =>
        tx.execute(
          sql.join(text.split("?").flatMap((part, at) => [sql.raw(part), ...(at < values.length ? [sql.param(values[at])] : [])])),
        ),
    };
  },

  async kysely({ url, max, table }) {
    const [{ Kysely, PostgresDialect, sql }, { default: pg }] = [await import("kysely"), await import("pg")];
    const db = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: url, max }) }) });
    return {
      handle: "fromKysely",
      transaction: (work) => db.transaction().execute(work),
      work: (tx, id) => sql`INSERT INTO ${sql.raw(table)} VALUES (${id}, 'placed')`.execute(tx),
    };
  },

  async knex({ url, max, table }) {
    const { default: knex } = await import("knex");
    const db = knex({ client: "pg", connection: url, pool: { min: 0, max } });
    return {
      handle: "fromKnex",
      transaction: (work) => db.transaction(work),
      work: (tx, id) => tx.raw(`INSERT INTO ${table} VALUES (?, 'placed')`, [id]),
    };
  },

  async typeorm({ url, max, table }) {
    const { DataSource } = await import("typeorm");
    const db = await new DataSource({ type: "postgres", url, poolSize: max }).initialize();
    return {
      handle: "fromTypeorm",
      transaction: (work) => db.transaction(work),
      work: (tx, id) => tx.query(`INSERT INTO ${table} VALUES ($1, 'placed')`, [id]),
    };
  },

  async prisma({ url, max, table }) {
    const { PrismaPg } = require("@prisma/adapter-pg");
    const { PrismaClient } = require(await prismaClient());
    const db = new PrismaClient({ adapter: new PrismaPg({ connectionString: url, max }) });
    return {
      handle: "fromPrisma",
      transaction: (work) => db.$transaction(work),
      work: (tx, id) => tx.$executeRawUnsafe(`INSERT INTO ${table} VALUES ($1, 'placed')`, id),
    };
  },
};

const written = new Map();

/** The text with PostgreSQL's placeholders. It is cached, because a service would not rewrite it for each statement. */
function numbered(text) {
  let nth = 0;
  return (
    written.get(text) ??
    written
      .set(
        text,
        text.replaceAll("?", () => `$${++nth}`),
      )
      .get(text)
  );
}

/** Prisma's client is generated once, into the cache. */
async function prismaClient() {
  const folder = fileURLToPath(new URL("../../.cache/bench/prisma", import.meta.url));
  const client = join(folder, "client");
  if (existsSync(client)) return client;
  mkdirSync(folder, { recursive: true });
  const schema = join(folder, "schema.prisma");
  writeFileSync(
    schema,
    `generator client {\n  provider = "prisma-client-js"\n  output = "./client"\n}\ndatasource db {\n  provider = "postgresql"\n}\nmodel Thing {\n  id Int @id\n}\n`,
  );
  const command = join(dirname(require.resolve("prisma/package.json")), "build/index.js");
  // Prisma would download an engine that only migrations need. The path of any other program prevents that.
  const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: "1" };
  await promisify(execFile)(process.execPath, [command, "generate", "--schema", schema], { env });
  return client;
}
