import type { Ask, SqlRow, StoreAdapter } from "../../contracts/adapter.ts";
import { WaybillError } from "../../core/errors.ts";
import { refuseUrl } from "../../core/url.ts";
import { createConnection } from "../../drivers/sqlite/connection.ts";
import { defaultDriver, explain, type SqliteDatabase } from "../../drivers/sqlite/driver.ts";
import { checkFile, fileBeside, pathOf, removeFile } from "../../drivers/sqlite/place.ts";
import { beside } from "../kit/describe.ts";
import { later } from "../kit/pool.ts";
import { rules } from "./examine.ts";
import { sqlite } from "./index.ts";
import { starter } from "./starter.ts";

export const sqliteAdapter: StoreAdapter = {
  name: "SQLite",
  schemes: ["sqlite"],
  example: "sqlite:./app.db",
  server: null,
  rules,
  starter,
  noTail: "SQLite has no log that other programs can follow: use --mode poll, which is woken at once by writers of its own process",
  oneWriter: true,
  open(url, create, placing) {
    const others = Object.keys(placing);
    if (others.length > 0)
      return refuseUrl(url, `is a file, which knows nothing of ${others.join(", ")}: leave ${others.length === 1 ? "it" : "them"} out`);
    const path = pathOf(url);
    // Opening would create an empty file, and a misspelt path would look like an empty outbox.
    if (!checkFile(path) && !create)
      throw new WaybillError("NOT_MIGRATED", `there is no file ${path}: check the path, or run waybill migrate --store ${url.shown}`);
    const { transaction, ...opened } = beside(sqlite({ path }), handle(path));
    return {
      ...opened,
      transaction: (work) =>
        transaction(work).catch((error: unknown) => {
          throw explain(error, path);
        }),
    };
  },
  /** A file of the run's own. */
  openRun(url, run) {
    const path = fileBeside(pathOf(url), run);
    const { [Symbol.asyncDispose]: end, ...opened } = beside(
      sqlite({ path }),
      handle(path, (db) => db.exec("PRAGMA busy_timeout = 50")),
    );
    const connection = createConnection({ path, lockTimeoutMs: 10_000 });
    return {
      ...opened,
      dialect: { key: "TEXT", position: "position INTEGER PRIMARY KEY AUTOINCREMENT" },
      within,
      ask: (sql, values = []) =>
        isRead(sql)
          ? connection.read((statements) => statements.all(sql, [...values]))
          : connection.write((_, db) => within(db)(sql, values)),
      table: (name) => name,
      remove: async () => removeFile(path),
      async [Symbol.asyncDispose]() {
        await connection.close();
        await end();
      },
    };
  },
};

function handle(path: string, prepare?: (db: SqliteDatabase) => void): ReturnType<typeof later<SqliteDatabase>> {
  return later(
    async () => {
      const db = (await defaultDriver())(path);
      prepare?.(db);
      return db;
    },
    (db) => db.close(),
  );
}

const isRead = (sql: string): boolean => /^SELECT/.test(sql);

function within(tx: unknown): Ask {
  const db = tx as SqliteDatabase;
  return async (sql, values = []) => {
    const statement = db.prepare(sql);
    if (isRead(sql)) return statement.all(...values) as SqlRow[];
    statement.run(...values);
    return [];
  };
}
