import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { defaultDriver, type OpenSqlite, type SqliteDatabase, type SqliteStatement } from "../../src/drivers/sqlite/driver.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { draft } from "../support/outbox.ts";

let folder: string;
let path: string;
let open: OpenSqlite;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-"));
  path = join(folder, "app.db");
  open = await defaultDriver();
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Stands for another copy of SQLite in this process: another class of handles. */
class OtherClient implements SqliteDatabase {
  readonly #db: SqliteDatabase;
  constructor(file: string) {
    this.#db = open(file);
  }
  exec(sql: string): unknown {
    return this.#db.exec(sql);
  }
  prepare(sql: string): SqliteStatement {
    return this.#db.prepare(sql);
  }
  close(): void {
    this.#db.close();
  }
}
const unfit = expect.objectContaining({ code: "DRIVER_UNFIT" }) as Error;

test("a handle of another client than the store's is refused: closing either would drop the other's locks", async () => {
  await using store = sqlite({ path });
  await store.schema.migrate();
  const outbox = createOutbox({ store });
  const other = new OtherClient(path);
  other.exec("BEGIN");
  expect(() => outbox.add(other, draft("a", 1))).toThrow(unfit);
  other.exec("ROLLBACK");
  await expect(outbox.transaction(other, () => undefined)).rejects.toThrow(unfit);
  await using same = sqlite({ path: join(folder, "other.db"), open: (file) => new OtherClient(file) });
  await same.schema.migrate();
  const handle = new OtherClient(join(folder, "other.db"));
  await createOutbox({ store: same }).transaction(handle, (_tx, events) => events.add(draft("a", 1)));
  expect((await same.operator.status()).states.PENDING).toBe(1);
  handle.close();
  other.close();
});

test("a store and a broker on one file must share a client, whatever name the file is given", async () => {
  await using store = sqlite({ path });
  await store.schema.migrate();
  symlinkSync(path, join(folder, "link.db"));
  const broker = embedded({ path: join(folder, "link.db"), open: (file) => new OtherClient(file) });
  await expect(broker.connect(new AbortController().signal)).rejects.toThrow(unfit);
  await using fitting = embedded({ path: join(folder, "link.db") });
  await fitting.connect(new AbortController().signal);
});

test("a handle wrapped by the user, behind which nothing can be seen, is taken at its word", async () => {
  await using store = sqlite({ path });
  await store.schema.migrate();
  const db = open(path);
  const wrapped: SqliteDatabase = { exec: (sql) => db.exec(sql), prepare: (sql) => db.prepare(sql), close: () => db.close() };
  await createOutbox({ store }).transaction(wrapped, (_tx, events) => events.add(draft("a", 1)));
  expect((await store.operator.status()).states.PENDING).toBe(1);
  db.close();
});
