import { startMariadb } from "../servers/mariadb.ts";
import { startMysql } from "../servers/mysql.ts";
import { startPostgres } from "../servers/postgres.ts";
import type { ServerName } from "../servers/available.ts";
import type { Server } from "../servers/server.ts";
import type { Cell } from "./features.ts";
import type { Ground, Keeping } from "./ground.ts";
import { mariadbGround } from "./mysql-ground.ts";
import { postgresGround } from "./postgres-ground.ts";
import { sqliteGround } from "./sqlite-ground.ts";
import { mariadbWays, nameOf, postgresWays, sqliteWays } from "./ways.ts";

/** A way to reach a store's database: one of the store's own, or a library's handle. */
export interface Way {
  readonly name: string;
  /** On the server's URL for a database; on nothing, where the store needs no server. */
  prepare(url: (database?: string) => string, keeping: Keeping): Promise<Ground>;
}

interface Played {
  readonly store: Cell["store"];
  readonly title: string;
  readonly server: { readonly name: ServerName; start(): Promise<Server> } | null;
  readonly ways: readonly Way[];
}

const onMysql: readonly Way[] = mariadbWays.map((way) => ({
  name: nameOf(way),
  prepare: (url, keeping) => mariadbGround(url, way, keeping),
}));

/** One row for each store. */
export const stores: readonly Played[] = [
  {
    store: "postgres",
    title: "PostgreSQL",
    server: { name: "postgres", start: () => startPostgres({ version: 15 }) },
    ways: postgresWays.map((way) => ({ name: nameOf(way), prepare: (url, keeping) => postgresGround(url(), way, keeping) })),
  },
  { store: "mariadb", title: "MariaDB", server: { name: "mariadb", start: () => startMariadb() }, ways: onMysql },
  { store: "mysql", title: "MySQL", server: { name: "mysql", start: () => startMysql() }, ways: onMysql },
  {
    store: "sqlite",
    title: "SQLite",
    server: null,
    ways: sqliteWays.map((way) => ({ name: nameOf(way), prepare: () => sqliteGround(way) })),
  },
];
