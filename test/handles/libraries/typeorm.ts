import Database from "libsql";
import { DataSource, type DataSourceOptions, type EntityManager } from "typeorm";
import { fromTypeorm } from "../../../src/outbox/handles/index.ts";
import { adapter, type Adapter, type Database as Name } from "../adapter.ts";

const on = (database: Name, options: (place: string) => DataSourceOptions): Adapter =>
  adapter({
    library: "TypeORM",
    database,
    handle: fromTypeorm,
    refuses: { none: true, ended: true },
    async open(place) {
      const db = await new DataSource(options(place)).initialize();
      return {
        db,
        none: { "the data source": db, "its manager": db.manager },
        transaction: (work) => db.transaction(work),
        savepoint: (manager: EntityManager, work) => manager.transaction(work),
        run: (manager: EntityManager, sql) => manager.query(sql),
        close: () => db.destroy(),
      };
    },
  });

export const typeormOnPostgres = on("PostgreSQL", (url) => ({ type: "postgres", url, poolSize: 5 }));
export const typeormOnMariadb = on("MariaDB", (url) => ({ type: "mariadb", url, poolSize: 5 }));
export const typeormOnSqlite = on("SQLite", (database) => ({ type: "better-sqlite3", database, driver: Database }));
