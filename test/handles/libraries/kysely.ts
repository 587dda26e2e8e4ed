import Database from "libsql";
import { CompiledQuery, type Dialect, Kysely, MysqlDialect, PostgresDialect, SqliteDialect, type Transaction } from "kysely";
import { createPool } from "mysql2";
import pg from "pg";
import { fromKysely } from "../../../src/outbox/handles/index.ts";
import { adapter, type Adapter, type Database as Name } from "../adapter.ts";

const on = (database: Name, dialect: (place: string) => Dialect): Adapter =>
  adapter({
    library: "Kysely",
    database,
    handle: fromKysely,
    refuses: { none: true, ended: true },
    async open(place) {
      const db = new Kysely<Record<string, never>>({ dialect: dialect(place) });
      return {
        db,
        none: { "the Kysely itself": db },
        transaction: (work) => db.transaction().execute(work),
        async savepoint(tx: Transaction<Record<string, never>>, work) {
          // A callback's transaction has no savepoints of its own; users write them.
          await tx.executeQuery(CompiledQuery.raw("SAVEPOINT inner_one"));
          try {
            await work(tx);
          } catch (error) {
            await tx.executeQuery(CompiledQuery.raw("ROLLBACK TO SAVEPOINT inner_one"));
            throw error;
          }
        },
        run: (tx: Transaction<Record<string, never>>, sql) => tx.executeQuery(CompiledQuery.raw(sql)),
        close: () => db.destroy(),
      };
    },
  });

export const kyselyOnPostgres = on("PostgreSQL", (url) => {
  const pool = new pg.Pool({ connectionString: url, max: 5 });
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
  return new PostgresDialect({ pool });
});
export const kyselyOnMariadb = on("MariaDB", (uri) => new MysqlDialect({ pool: createPool({ uri, connectionLimit: 5 }) }));
export const kyselyOnSqlite = on("SQLite", (path) => new SqliteDialect({ database: new Database(path) }));
