import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import { systemClock } from "../../src/core/clock.ts";
import { defaultDriver, type SqliteDatabase, type SqliteValue } from "../../src/drivers/sqlite/driver.ts";

const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** A path in a folder of its own, which goes with the test. */
export function freshPath(): string {
  const folder = mkdtempSync(join(tmpdir(), "waybill-broker-"));
  folders.push(folder);
  return join(folder, "broker.db");
}

export const driver = await defaultDriver();

/** Plain SQL on a connection of its own, as somebody without Waybill would run it. */
export function sql(path: string, text: string, ...values: SqliteValue[]): readonly Record<string, unknown>[] {
  return withFile(path, (db) => db.prepare(text).all(...values) as Record<string, unknown>[]);
}

export function execute(path: string, text: string): void {
  withFile(path, (db) => db.exec(text));
}

function withFile<T>(path: string, work: (db: SqliteDatabase) => T): T {
  const db = driver(path);
  try {
    db.exec("PRAGMA busy_timeout = 5000");
    return work(db);
  } finally {
    db.close();
  }
}

/** A client whose statements a test can watch and fail: `before` and `after` see each one's text. */
export function watched(hooks: { before?: (text: string) => void; after?: (text: string) => void }): (path: string) => SqliteDatabase {
  const run = <T>(text: string, step: () => T): T => {
    hooks.before?.(text);
    const result = step();
    hooks.after?.(text);
    return result;
  };
  return (path) => {
    const db = driver(path);
    return {
      exec: (text) => run(text, () => db.exec(text)),
      prepare(text) {
        const statement = db.prepare(text);
        return {
          run: (...values) => run(text, () => statement.run(...values)),
          all: (...values) => run(text, () => statement.all(...values)),
        };
      },
      close: () => db.close(),
    };
  };
}

export async function eventually(what: string, holds: () => boolean, withinMs = 15_000): Promise<void> {
  const until = performance.now() + withinMs;
  while (!holds()) {
    if (performance.now() > until) throw new Error(`${what}: not within ${withinMs} ms`);
    await systemClock.sleep(10);
  }
}
