import { MikroORM as OnLibsql } from "@mikro-orm/libsql";
import { MikroORM as OnMariadb } from "@mikro-orm/mariadb";
import { MikroORM as OnPostgres, type SqlEntityManager } from "@mikro-orm/postgresql";
import { fromMikroOrm } from "../../../src/outbox/handles/index.ts";
import { adapter, type Adapter, type Database } from "../adapter.ts";

interface Orm {
  readonly em: object;
  close(): Promise<unknown>;
}

const on = (database: Database, init: (place: string) => Promise<Orm>): Adapter =>
  adapter({
    library: "MikroORM",
    database,
    handle: fromMikroOrm,
    refuses: { none: true, ended: true },
    async open(place) {
      const orm = await init(place);
      const em = (orm.em as SqlEntityManager).fork();
      return {
        db: em,
        none: { "an entity manager": em },
        transaction: (work) => em.transactional(work),
        savepoint: (inside: SqlEntityManager, work) => inside.transactional(work),
        run: (inside: SqlEntityManager, sql) => inside.execute(sql),
        close: () => orm.close(),
      };
    },
  });

const options = { entities: [], discovery: { warnWhenNoEntities: false }, pool: { min: 0, max: 5 } };

export const mikroOrmOnPostgres = on("PostgreSQL", (clientUrl) => OnPostgres.init({ ...options, clientUrl }));
export const mikroOrmOnMariadb = on("MariaDB", (clientUrl) => OnMariadb.init({ ...options, clientUrl }));
export const mikroOrmOnSqlite = on("SQLite", (dbName) => OnLibsql.init({ ...options, dbName }));
