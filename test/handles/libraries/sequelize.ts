import { Sequelize, type Options, type Transaction } from "sequelize";
import { fromSequelize } from "../../../src/outbox/handles/index.ts";
import { adapter, type Adapter, type Database } from "../adapter.ts";
import { sqlite3 } from "./sqlite3.ts";

const on = (database: Database, connect: (place: string, options: Options) => Sequelize): Adapter =>
  adapter({
    library: "Sequelize",
    database,
    handle: fromSequelize,
    refuses: { none: true, ended: true },
    async open(place) {
      const db = connect(place, { logging: false, pool: { max: 5 } });
      return {
        db,
        none: { "the Sequelize itself": db },
        transaction: (work) => db.transaction(work),
        savepoint: (transaction: Transaction, work) => db.transaction({ transaction }, work),
        run: (transaction: Transaction, sql) => db.query(sql, { transaction }),
        close: () => db.close(),
      };
    },
  });

export const sequelizeOnPostgres = on("PostgreSQL", (url, options) => new Sequelize(url, { ...options, dialect: "postgres" }));
export const sequelizeOnMariadb = on("MariaDB", (url, options) => new Sequelize(url, { ...options, dialect: "mysql" }));
export const sequelizeOnSqlite = on(
  "SQLite",
  (storage, options) => new Sequelize({ ...options, dialect: "sqlite", storage, dialectModule: sqlite3 }),
);
