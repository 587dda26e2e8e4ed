import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { describe } from "vitest";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { worksIn, type Ground } from "./body.ts";
import { drizzleOnLibsql } from "./libraries/drizzle-libsql.ts";
import { knexOnSqlite } from "./libraries/knex.ts";
import { kyselyOnSqlite } from "./libraries/kysely.ts";
import { mikroOrmOnSqlite } from "./libraries/mikro-orm.ts";
import { prismaOn } from "./libraries/prisma.ts";
import { sequelizeOnSqlite } from "./libraries/sequelize.ts";
import { typeormOnSqlite } from "./libraries/typeorm.ts";
import { present } from "./optional.ts";
import { isInTheDocs } from "./table.ts";

const found = [
  kyselyOnSqlite,
  knexOnSqlite,
  typeormOnSqlite,
  sequelizeOnSqlite,
  mikroOrmOnSqlite,
  await drizzleOnLibsql(),
  await prismaOn("SQLite"),
];
isInTheDocs(found);
const adapters = present(found);

/** One client for the file in this process, the libraries' and the store's. */
const open = (path: string): Database.Database => new Database(path);

const prepare = async (): Promise<Ground> => {
  const folder = mkdtempSync(join(tmpdir(), "waybill-"));
  const path = join(folder, "app.db");
  const store = sqlite({ path, open });
  await store.schema.migrate();
  const db = open(path);
  db.exec("CREATE TABLE effects (name text NOT NULL)");
  return {
    place: path,
    store,
    execute: async (sql) => db.exec(sql),
    effects: "effects",
    readEffects: async () => (db.prepare("SELECT name FROM effects").all() as { name: string }[]).map(({ name }) => name),
    close: async () => {
      db.close();
      await store[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    },
  };
};

describe("handles on SQLite", () => {
  for (const adapter of adapters) worksIn(adapter, prepare);
});
