import { prismaOn } from "../handles/libraries/prisma.ts";
import { drizzleOnMysql2, drizzleOnNodePostgres, drizzleOnPostgresJs } from "../handles/libraries/drizzle.ts";
import { knexOnMariadb, knexOnPostgres } from "../handles/libraries/knex.ts";
import { kyselyOnMariadb, kyselyOnPostgres } from "../handles/libraries/kysely.ts";
import { mikroOrmOnMariadb, mikroOrmOnPostgres } from "../handles/libraries/mikro-orm.ts";
import { onMysql2 } from "../handles/libraries/mysql2.ts";
import { onPg } from "../handles/libraries/pg.ts";
import { onPostgresJs } from "../handles/libraries/postgres-js.ts";
import { sequelizeOnMariadb, sequelizeOnPostgres } from "../handles/libraries/sequelize.ts";
import { typeormOnMariadb, typeormOnPostgres } from "../handles/libraries/typeorm.ts";
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

export const nameOf = (way: (typeof postgresWays)[number]): string => (typeof way === "string" ? `{ ${way} }` : way.library);
