import { prismaOn } from "../handles/libraries/prisma.ts";
import { drizzleOnMysql2, drizzleOnNodePostgres, drizzleOnPostgresJs } from "../handles/libraries/drizzle.ts";
import { drizzleOnLibsql } from "../handles/libraries/drizzle-libsql.ts";
import { knexOnMariadb, knexOnPostgres, knexOnSqlite } from "../handles/libraries/knex.ts";
import { kyselyOnMariadb, kyselyOnPostgres, kyselyOnSqlite } from "../handles/libraries/kysely.ts";
import { mikroOrmOnMariadb, mikroOrmOnPostgres, mikroOrmOnSqlite } from "../handles/libraries/mikro-orm.ts";
import { onMysql2 } from "../handles/libraries/mysql2.ts";
import { onPg } from "../handles/libraries/pg.ts";
import { onPostgresJs } from "../handles/libraries/postgres-js.ts";
import { sequelizeOnMariadb, sequelizeOnPostgres, sequelizeOnSqlite } from "../handles/libraries/sequelize.ts";
import { typeormOnMariadb, typeormOnPostgres, typeormOnSqlite } from "../handles/libraries/typeorm.ts";
import { present } from "../handles/optional.ts";

/** Every way in which a subscriber's handlers reach a database server. */
export const postgresWays = [
  "url" as const,
  "pool" as const,
  ...present([
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
  ]),
];

export const mariadbWays = [
  "url" as const,
  "pool" as const,
  ...present([
    onMysql2,
    kyselyOnMariadb,
    drizzleOnMysql2,
    knexOnMariadb,
    typeormOnMariadb,
    sequelizeOnMariadb,
    mikroOrmOnMariadb,
    await prismaOn("MariaDB"),
  ]),
];

export const sqliteWays = [
  "path" as const,
  ...present([
    kyselyOnSqlite,
    knexOnSqlite,
    typeormOnSqlite,
    sequelizeOnSqlite,
    mikroOrmOnSqlite,
    await drizzleOnLibsql(),
    await prismaOn("SQLite"),
  ]),
];

export const nameOf = (way: (typeof postgresWays)[number] | (typeof sqliteWays)[number]): string =>
  typeof way === "string" ? `{ ${way} }` : way.library;
