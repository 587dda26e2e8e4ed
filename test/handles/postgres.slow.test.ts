import pg from "pg";
import { afterAll, beforeAll } from "vitest";
import { postgres } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { worksIn, type Ground } from "./body.ts";
import { tellsOfALostCommit } from "./commit.ts";
import { drizzleOnNodePostgres, drizzleOnPostgresJs } from "./libraries/drizzle.ts";
import { knexOnPostgres } from "./libraries/knex.ts";
import { kyselyOnPostgres } from "./libraries/kysely.ts";
import { mikroOrmOnPostgres } from "./libraries/mikro-orm.ts";
import { onPg } from "./libraries/pg.ts";
import { onPostgresJs } from "./libraries/postgres-js.ts";
import { prismaOn } from "./libraries/prisma.ts";
import { sequelizeOnPostgres } from "./libraries/sequelize.ts";
import { typeormOnPostgres } from "./libraries/typeorm.ts";
import { survivesLooseStatements } from "./loose.ts";
import { outlivesNestedTransactions } from "./nested.ts";
import { present } from "./optional.ts";
import { isInTheDocs } from "./table.ts";

const found = [
  onPg,
  onPostgresJs,
  kyselyOnPostgres,
  drizzleOnNodePostgres,
  drizzleOnPostgresJs,
  knexOnPostgres,
  typeormOnPostgres,
  sequelizeOnPostgres,
  mikroOrmOnPostgres,
  await prismaOn("PostgreSQL"),
];
isInTheDocs(found);
const adapters = present(found);

await describeWith("postgres", "handles on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  let made = 0;
  const prepare = async (): Promise<Ground> => {
    const n = ++made;
    // Libraries must not find a placeholder in it.
    const options = { schema: `o"d $1? '${n}` };
    const pool = new pg.Pool({ connectionString: server.url(), max: 5 });
    pool.on("error", () => undefined);
    const store = postgres({ pool, ...options });
    await store.schema.migrate();
    const effects = `effects_${n}`;
    await pool.query(`CREATE TABLE ${effects} (name text NOT NULL)`);
    return {
      place: server.url(),
      store,
      through: (tx, db) => postgres({ pool, ...options, tx, db }),
      execute: (sql) => pool.query(sql),
      effects,
      readEffects: async () => (await pool.query<{ name: string }>(`SELECT name FROM ${effects}`)).rows.map(({ name }) => name),
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
