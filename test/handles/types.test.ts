import type { SqlEntityManager } from "@mikro-orm/postgresql";
import type { MySql2Database } from "drizzle-orm/mysql2";
import type { NodePgDatabase } from "drizzle-orm/node-postgres";
import { integer, pgTable } from "drizzle-orm/pg-core";
import type { Knex } from "knex";
import type { ControlledTransaction, Kysely, Transaction } from "kysely";
import type { Pool, PoolConnection } from "mysql2/promise";
import type pg from "pg";
import type postgresJs from "postgres";
import type { Sequelize, Transaction as SequelizeTransaction } from "sequelize";
import type { DataSource, EntityManager } from "typeorm";
import { describe, expectTypeOf, test } from "vitest";
import type { Inbox } from "../../src/contracts/inbox.ts";
import type { Store } from "../../src/contracts/store.ts";
import {
  fromDrizzle,
  fromKnex,
  fromKysely,
  fromMikroOrm,
  fromMysql2,
  fromPg,
  fromPostgresJs,
  fromPrisma,
  fromSequelize,
  fromTypeorm,
} from "../../src/outbox/handles/index.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { memory } from "../../src/stores/memory/index.ts";
import { postgres, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { sqlite, type SqliteDatabase } from "../../src/stores/sqlite/index.ts";
import { draft } from "../support/outbox.ts";

const _orders = pgTable("orders", { id: integer() });
type Drizzle = NodePgDatabase<{ orders: typeof _orders }>;
type DrizzleTx = Parameters<Parameters<Drizzle["transaction"]>[0]>[0];
interface Tables {
  readonly orders: { id: number };
}
/** As `prisma generate` writes it. */
interface Prisma {
  readonly order: { create(): Promise<void> };
  $connect(): Promise<void>;
  $queryRawUnsafe<T = unknown>(query: string, ...values: unknown[]): Promise<T>;
  $transaction<P extends Promise<unknown>[]>(given: [...P], options?: { isolationLevel?: string }): Promise<unknown[]>;
  $transaction<R>(work: (tx: Omit<Prisma, "$connect">) => Promise<R>, options?: { timeout?: number }): Promise<R>;
}

declare const store: PostgresStore;
const event = draft("1", 1);

/** Never called: only the compiler reads it. */
const read = (use: () => unknown): void => void expectTypeOf(use).toBeFunction();

describe("with a handle, the compiler knows", () => {
  test("the library's own transaction in outbox.transaction, from the database that is given", () => {
    read(() => [
      (db: pg.Pool) => createOutbox({ store, tx: fromPg }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<pg.PoolClient>()),
      (db: pg.Client) => createOutbox({ store, tx: fromPg }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<pg.Client>()),
      (db: postgresJs.Sql) =>
        createOutbox({ store, tx: fromPostgresJs }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<postgresJs.TransactionSql>()),
      (db: Kysely<Tables>) =>
        createOutbox({ store, tx: fromKysely }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<Transaction<Tables>>()),
      (db: Drizzle) => createOutbox({ store, tx: fromDrizzle }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<DrizzleTx>()),
      (db: MySql2Database) =>
        createOutbox({ store, tx: fromDrizzle }).transaction(db, (tx) => expectTypeOf(tx.rollback).returns.toBeNever()),
      (db: Knex) => createOutbox({ store, tx: fromKnex }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<Knex.Transaction>()),
      (db: DataSource) => createOutbox({ store, tx: fromTypeorm }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<EntityManager>()),
      (db: Sequelize) =>
        createOutbox({ store, tx: fromSequelize }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<SequelizeTransaction>()),
      (db: SqlEntityManager) =>
        createOutbox({ store, tx: fromMikroOrm }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<SqlEntityManager>()),
      (db: Prisma) =>
        createOutbox({ store, tx: fromPrisma }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<Omit<Prisma, "$connect">>()),
      (db: Pool) => createOutbox({ store, tx: fromMysql2 }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<PoolConnection>()),
    ]);
  });

  test("what add takes, and that a database is no transaction", () => {
    read(() => [
      (tx: pg.PoolClient) => createOutbox({ store, tx: fromPg }).add(tx, event),
      (tx: postgresJs.TransactionSql) => createOutbox({ store, tx: fromPostgresJs }).add(tx, event),
      (tx: Transaction<Tables>) => createOutbox({ store, tx: fromKysely }).add(tx, event),
      (tx: ControlledTransaction<Tables>) => createOutbox({ store, tx: fromKysely }).add(tx, event),
      (tx: DrizzleTx) => createOutbox({ store, tx: fromDrizzle }).add(tx, event),
      (tx: Knex.Transaction) => createOutbox({ store, tx: fromKnex }).add(tx, event),
      (tx: EntityManager) => createOutbox({ store, tx: fromTypeorm }).add(tx, event),
      (tx: SequelizeTransaction) => createOutbox({ store, tx: fromSequelize }).add(tx, event),
      (tx: SqlEntityManager) => createOutbox({ store, tx: fromMikroOrm }).add(tx, event),
      (tx: Omit<Prisma, "$connect">) => createOutbox({ store, tx: fromPrisma }).add(tx, event),
      (tx: PoolConnection) => createOutbox({ store, tx: fromMysql2 }).add(tx, event),
      // @ts-expect-error the sql itself
      (db: postgresJs.Sql) => createOutbox({ store, tx: fromPostgresJs }).add(db, event),
      // @ts-expect-error the Kysely itself
      (db: Kysely<Tables>) => createOutbox({ store, tx: fromKysely }).add(db, event),
      // @ts-expect-error the database
      (db: Drizzle) => createOutbox({ store, tx: fromDrizzle }).add(db, event),
      // @ts-expect-error the Knex itself
      (db: Knex) => createOutbox({ store, tx: fromKnex }).add(db, event),
      // @ts-expect-error the Sequelize itself
      (db: Sequelize) => createOutbox({ store, tx: fromSequelize }).add(db, event),
    ]);
  });

  test("what the handlers of a store in the library's transactions are given", () => {
    read(() => (pool: pg.Pool, db: Drizzle, kysely: Kysely<Tables>) => {
      const drizzled = postgres({ pool, tx: fromDrizzle, db });
      expectTypeOf(drizzled).toEqualTypeOf<Store<Drizzle, DrizzleTx>>();
      expectTypeOf(postgres({ pool, tx: fromKysely, db: kysely }).inbox).toEqualTypeOf<Inbox<Transaction<Tables>>>();
      void createOutbox({ store: drizzled }).transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<DrizzleTx>());
      // @ts-expect-error db is missing
      postgres({ pool, tx: fromDrizzle });
      // @ts-expect-error another library's
      postgres({ pool, tx: fromKysely, db });
    });
  });

  test("that the store's own client is as it was", () => {
    read(() => (path: string, db: SqliteDatabase) => {
      const outbox = createOutbox({ store: sqlite({ path }) });
      expectTypeOf(outbox.add).parameter(0).toEqualTypeOf<SqliteDatabase>();
      return outbox.transaction(db, (tx) => expectTypeOf(tx).toEqualTypeOf<SqliteDatabase>());
    });
    read(() => (path: string) => createOutbox({ store: sqlite({ path }), tx: fromKysely }));
    // @ts-expect-error memory has no SQL
    read(() => createOutbox({ store: memory(), tx: fromKysely }));
  });
});
