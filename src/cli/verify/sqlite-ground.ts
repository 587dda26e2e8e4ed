import { rmSync } from "node:fs";
import { dirname, join, parse } from "node:path";
import { createOutbox } from "../../outbox/outbox.ts";
import { createConnection } from "../../drivers/sqlite/connection.ts";
import { defaultDriver, type SqliteDatabase } from "../../drivers/sqlite/driver.ts";
import { sqlite } from "../../stores/sqlite/index.ts";
import type { Store } from "../../contracts/store.ts";
import { createTables, fill, type Ask, type Ground, type SqlRow, type Tables } from "./ground.ts";

const tables: Tables = {
  counters: "counters",
  written: "written",
  elsewhere: "elsewhere",
  effects: "effects",
  applied: "applied",
  outbox: "outbox",
};

/** A file of the run's own, next to the one that was named. */
export const fileBeside = (path: string, run: string): string => {
  const { name, ext } = parse(path);
  return join(dirname(path), `${name}-${run}${ext}`);
};

export function removeFile(path: string): void {
  for (const end of ["", "-journal", "-wal", "-shm"]) rmSync(`${path}${end}`, { force: true });
}

export async function sqliteGround(path: string, run: string): Promise<Ground> {
  const file = fileBeside(path, run);
  const store = sqlite({ path: file });
  const outbox = createOutbox({ store });
  const open = await defaultDriver();
  let db: SqliteDatabase | null = null;
  const opened = (): SqliteDatabase => {
    if (db === null) {
      db = open(file);
      db.exec("PRAGMA busy_timeout = 50");
    }
    return db;
  };
  const within = (tx: unknown): Ask => {
    const on = tx as SqliteDatabase;
    return async (sql, values = []) => {
      const statement = on.prepare(sql);
      if (/^SELECT/.test(sql)) return statement.all(...values) as SqlRow[];
      statement.run(...values);
      return [];
    };
  };
  const reading = createConnection({ path: file, lockTimeoutMs: 10_000 });
  return {
    store: store as unknown as Store<never, never>,
    tables,
    within,
    ask: (sql, values = []) => reading.read((statements) => statements.all(sql, ...values)),
    async prepare(aggregates, consumers) {
      await store.schema.migrate();
      await store.transactor.transaction(opened(), async (tx) => {
        for (const sql of createTables(tables, { key: "TEXT", position: "position INTEGER PRIMARY KEY AUTOINCREMENT" })) tx.exec(sql);
        await fill(within(tx), tables, aggregates, consumers);
      });
    },
    transaction: (work) =>
      outbox.transaction(opened(), (tx, events) => work({ ask: within(tx), add: (drafts) => outbox.add(tx, drafts), events })),
    async remove() {
      removeFile(file);
    },
    async [Symbol.asyncDispose]() {
      db?.close();
      await reading.close();
      await store[Symbol.asyncDispose]();
    },
  };
}
