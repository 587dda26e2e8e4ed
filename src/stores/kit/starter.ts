import type { StarterLibrary, StarterTable } from "../../contracts/starter.ts";

type Columns = Readonly<Record<StarterTable, string>>;

/** The same imports for both programs. */
export const both = (...lines: readonly string[]): StarterLibrary["imports"] => ({ orders: lines, parcels: lines });

/** `run` sends a statement outside of a transaction. */
export function createTable(run: string, columns: Columns): StarterLibrary["table"] {
  const create = (table: StarterTable): readonly string[] => [
    `${run}("CREATE TABLE IF NOT EXISTS ${table} (${columns[table]})"); // a migration of yours, later`,
  ];
  return { orders: create("orders"), parcels: create("parcels") };
}

export const insertThrough = {
  kysely: {
    orders: 'await tx.insertInto("orders").values(order).execute();',
    parcels: 'await tx.insertInto("parcels").values({ order_id: event.aggregateId }).execute();',
  },
  knex: {
    orders: 'await tx("orders").insert(order);',
    parcels: 'await tx("parcels").insert({ order_id: event.aggregateId });',
  },
} as const;

/** Knex makes its own pool and does not share it, so the store has another one. */
export const knexLibrary = (client: string, columns: Columns): StarterLibrary => ({
  word: "knex",
  packages: ["knex"],
  imports: both('import knex from "knex";'),
  open: [`const db = knex({ client: "${client}", connection: config.store });`],
  db: "db",
  options: "{ url: config.store }",
  handle: "fromKnex",
  table: createTable("await db.raw", columns),
  insert: insertThrough.knex,
  close: "await db.destroy();",
});

/** TypeORM makes its own pool and does not share it, so the store has another one. */
export const typeormLibrary = (type: string, columns: Columns, insert: StarterLibrary["insert"]): StarterLibrary => ({
  word: "typeorm",
  packages: ["typeorm"],
  imports: both('import { DataSource } from "typeorm";'),
  open: [`const db = new DataSource({ type: "${type}", url: config.store, entities: [] }); // your entities`, "await db.initialize();"],
  db: "db",
  options: "{ url: config.store }",
  handle: "fromTypeorm",
  table: createTable("await db.query", columns),
  insert,
  close: "await db.destroy();",
});
