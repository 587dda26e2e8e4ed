import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import type { SqliteDatabase } from "../../src/drivers/sqlite/driver.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import type { Adapter } from "../handles/adapter.ts";
import type { AnyHandle } from "../handles/body.ts";
import { counted, texts, type Ground } from "./ground.ts";

/** One client for the file in this process, the libraries' and the store's. */
const open = (path: string): Database.Database => new Database(path);

/** A library's transactions add the service's events; handlers have the store's own connection. */
export async function sqliteGround(way: "path" | Adapter = "path"): Promise<Ground> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-"));
  const path = join(folder, "app.db");
  const store = sqlite({ path, open });
  await store.schema.migrate();
  const db = open(path);
  db.exec("PRAGMA busy_timeout = 10000; CREATE TABLE effects (pos integer PRIMARY KEY AUTOINCREMENT, name text NOT NULL)");
  db.exec("CREATE TABLE scratch (name text NOT NULL)");
  const library = way === "path" ? null : await way.open(path);
  const ofService = way === "path" ? counted(store) : counted(store, way.handle as AnyHandle);
  const ofHandlers = counted(store);
  const end = async (): Promise<void> => {
    await library?.close();
    await store[Symbol.asyncDispose]();
  };
  let ended: Promise<void> | null = null;
  return {
    store: store as unknown as Ground["store"],
    relayed: store,
    outbox: ofHandlers.outbox,
    hints: () => ofService.hints() + ofHandlers.hints(),
    async transaction(work) {
      if (library !== null) return library.transaction((tx) => work(tx, ofService.outbox));
      db.exec("BEGIN IMMEDIATE");
      try {
        await work(db, ofService.outbox);
        db.exec("COMMIT");
      } catch (error) {
        db.exec("ROLLBACK");
        throw error;
      }
    },
    run: async (tx, sql) => (tx as SqliteDatabase).exec(sql),
    read: async (sql) => {
      const statement = db.prepare(sql);
      if (statement.reader) return texts(statement.all() as Record<string, unknown>[]);
      statement.run();
      return [];
    },
    end: () => (ended ??= end()),
    async close() {
      await (ended ??= end());
      db.close();
      rmSync(folder, { recursive: true });
    },
  };
}
