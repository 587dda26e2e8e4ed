import { createPool, type RowDataPacket } from "mysql2/promise";
import { afterAll, beforeAll } from "vitest";
import { mysql } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import type { Server } from "../servers/server.ts";
import { both } from "../stores/mariadb-own.ts";
import { worksIn, type Ground } from "./body.ts";
import { tellsOfALostCommit } from "./commit.ts";
import { drizzleOnMysql2 } from "./libraries/drizzle.ts";
import { knexOnMariadb } from "./libraries/knex.ts";
import { kyselyOnMariadb } from "./libraries/kysely.ts";
import { mikroOrmOnMariadb } from "./libraries/mikro-orm.ts";
import { onMysql2 } from "./libraries/mysql2.ts";
import { prismaOn } from "./libraries/prisma.ts";
import { sequelizeOnMariadb } from "./libraries/sequelize.ts";
import { typeormOnMariadb } from "./libraries/typeorm.ts";
import { survivesLooseStatements } from "./loose.ts";
import { outlivesNestedTransactions } from "./nested.ts";
import { present } from "./optional.ts";
import { isInTheDocs } from "./table.ts";

const found = [
  onMysql2,
  kyselyOnMariadb,
  drizzleOnMysql2,
  knexOnMariadb,
  typeormOnMariadb,
  sequelizeOnMariadb,
  mikroOrmOnMariadb,
  await prismaOn("MariaDB"),
];
for (const { name, title, start } of both) {
  const here = found.map((one) => ({ ...one, database: title }));
  isInTheDocs(here);
  const adapters = present(here);

  await describeWith(name, `handles on ${title}`, () => {
    let server: Server;
    beforeAll(async () => {
      server = await start();
    });
    afterAll(() => server[Symbol.asyncDispose]());

    let made = 0;
    const prepare = async (): Promise<Ground> => {
      const database = `handles_${++made}`;
      const pool = createPool({ uri: server.url("mysql"), connectionLimit: 5 });
      await pool.query(`CREATE DATABASE ${database}`);
      const url = server.url(database);
      const store = mysql({ url });
      await store.schema.migrate();
      const effects = `${database}.effects`;
      await pool.query(`CREATE TABLE ${effects} (name varchar(100) NOT NULL)`);
      return {
        place: url,
        store,
        through: (tx, db) => mysql({ url, tx, db }),
        execute: (sql) => pool.query(sql),
        effects,
        readEffects: async () => (await pool.query<RowDataPacket[]>(`SELECT name FROM ${effects}`))[0].map(({ name }) => String(name)),
        close: async () => {
          await store[Symbol.asyncDispose]();
          await pool.end();
        },
      };
    };
    for (const adapter of adapters) worksIn(adapter, prepare);
    for (const adapter of adapters) tellsOfALostCommit(adapter, prepare);
    for (const adapter of adapters) survivesLooseStatements(adapter, prepare);
    for (const adapter of adapters) outlivesNestedTransactions(adapter, prepare);
  });
}
