import { createRequire } from "node:module";
import knex, { type Knex } from "knex";
import { fromKnex } from "../../../src/outbox/handles/index.ts";
import { adapter, type Adapter, type Database } from "../adapter.ts";

const require = createRequire(import.meta.url);

const on = (database: Database, config: (place: string) => Knex.Config): Adapter =>
  adapter({
    library: "Knex",
    database,
    handle: fromKnex,
    refuses: { none: true, ended: true },
    async open(place) {
      const db = knex(config(place));
      return {
        db,
        none: { "the Knex itself": db },
        transaction: (work) => db.transaction(work),
        savepoint: (trx: Knex.Transaction, work) => trx.transaction(work),
        run: (trx: Knex.Transaction, sql) => trx.raw(sql),
        close: () => db.destroy(),
      };
    },
  });

export const knexOnPostgres = on("PostgreSQL", (connection) => ({ client: "pg", connection, pool: { min: 0, max: 5 } }));
export const knexOnMariadb = on("MariaDB", (connection) => ({ client: "mysql2", connection, pool: { min: 0, max: 5 } }));

/** Knex's own dialect of better-sqlite3, over a client that has the same methods and needs no compiler. */
class OnLibsql extends (require("knex/lib/dialects/better-sqlite3/index.js") as typeof Knex.Client) {
  _driver(): unknown {
    return require("libsql") as unknown;
  }
}
export const knexOnSqlite = on("SQLite", (filename) => ({ client: OnLibsql, connection: { filename }, useNullAsDefault: true }));
