import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createConnection } from "../../src/drivers/sqlite/connection.ts";
import { defaultDriver, type OpenSqlite } from "../../src/drivers/sqlite/driver.ts";

function freshPath(): string {
  const folder = mkdtempSync(join(tmpdir(), "waybill-opening-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "app.db");
}

const busy = (): Error => Object.assign(new Error("database is locked"), { code: "SQLITE_BUSY" });

/** A client that finds the file locked the first few times that it is asked for this. */
function locked(open: OpenSqlite, text: string, times: number): OpenSqlite {
  const refuse = (sql: string): void => {
    if (sql.includes(text) && times-- > 0) throw busy();
  };
  return (path) => {
    const db = open(path);
    return {
      exec(sql) {
        refuse(sql);
        return db.exec(sql);
      },
      prepare(sql) {
        refuse(sql);
        return db.prepare(sql);
      },
      close: () => db.close(),
    };
  };
}

// In WAL mode the last one to close a file, and the first one after a crash, lock it for a moment.
test.each(["sqlite_version", "journal_mode", "synchronous"])(
  "a file that is locked at %s is opened when the lock is gone",
  async (text) => {
    const connection = createConnection({ path: freshPath(), open: locked(await defaultDriver(), text, 3), lockTimeoutMs: 5_000 });
    onTestFinished(() => connection.close());
    expect(await connection.read((statements) => statements.get("SELECT 1 AS one")?.["one"])).toBe(1);
  },
);

test("a file that stays locked is said to be locked, and opens later", async () => {
  const path = freshPath();
  const other = (await defaultDriver())(path);
  onTestFinished(() => other.close());
  other.exec("CREATE TABLE t (x); BEGIN EXCLUSIVE; INSERT INTO t VALUES (1)");
  const connection = createConnection({ path, lockTimeoutMs: 50 });
  onTestFinished(() => connection.close());
  await expect(connection.read((statements) => statements.all("SELECT x FROM t"))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  other.exec("COMMIT");
  expect(await connection.read((statements) => statements.all("SELECT x FROM t").length)).toBe(1);
});
