import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createConnection } from "../../src/drivers/sqlite/connection.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-given-up-"))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("a read that was given up because of a lock keeps nobody else from writing, whatever its connection does next", async () => {
  const path = join(folder, "file.db");
  const other = (await defaultDriver())(path);
  other.exec("PRAGMA journal_mode = delete; PRAGMA busy_timeout = 0; CREATE TABLE t (a INTEGER)");
  const connection = createConnection({ path, lockTimeoutMs: 50 });
  await connection.read((statements) => statements.all("SELECT a FROM t"));

  other.exec("BEGIN EXCLUSIVE");
  await expect(connection.read((statements) => statements.all("SELECT count(*) FROM t"))).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
  });
  other.exec("COMMIT");

  await connection.read((statements) => statements.all("SELECT a FROM t"));
  await connection.write((statements) => statements.run("INSERT INTO t VALUES (1)"));
  other.exec("INSERT INTO t VALUES (2)");
  other.close();
  await connection.close();
});
