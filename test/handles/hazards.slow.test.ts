import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EntitySchema, MikroORM } from "@mikro-orm/libsql";
import { CamelCasePlugin, Kysely, SqliteDialect } from "kysely";
import Database from "libsql";
import { afterEach, beforeEach, expect, test } from "vitest";
import { fromKysely, fromMikroOrm } from "../../src/outbox/handles/index.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { sqlite, type SqliteStore } from "../../src/stores/sqlite/index.ts";
import { draft } from "../support/outbox.ts";

let folder: string;
let path: string;
let store: SqliteStore;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-"));
  path = join(folder, "app.db");
  store = sqlite({ path, open: (file) => new Database(file) });
  await store.schema.migrate();
});
afterEach(async () => {
  await store[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

class Order {
  id!: string;
}

test("what MikroORM has not written yet is written before an event is numbered", async () => {
  const orm = await MikroORM.init({
    dbName: path,
    entities: [new EntitySchema<Order>({ class: Order, properties: { id: { type: "string", primary: true } } })],
  });
  try {
    await orm.em.fork().execute("CREATE TABLE `order` (id text PRIMARY KEY)");
    await orm.em.fork().execute(
      `CREATE TRIGGER in_time BEFORE INSERT ON outbox WHEN NOT EXISTS (SELECT 1 FROM "order" WHERE id = NEW.aggregate_id)
       BEGIN SELECT RAISE(ABORT, 'an event before its order'); END`,
    );
    const outbox = createOutbox({ store, tx: fromMikroOrm });
    await outbox.transaction(orm.em.fork(), async (em, events) => {
      em.persist(em.create(Order, { id: "o1" }));
      events.add(draft("o1", 1));
    });
    await orm.em.fork().transactional(async (em) => {
      em.persist(em.create(Order, { id: "o2" }));
      await outbox.add(em, draft("o2", 1));
    });
    expect((await store.operator.status()).states.PENDING).toBe(2);
  } finally {
    await orm.close();
  }
});

test("two that use one key at once, in one transaction, agree on the event", async () => {
  const db = new Kysely<Record<string, never>>({ dialect: new SqliteDialect({ database: new Database(path) }) });
  const outbox = createOutbox({ store, tx: fromKysely });
  const [one, two] = [draft("a", 1, { idempotencyKey: "k" }), draft("a", 2, { idempotencyKey: "k" })];
  const added = await db.transaction().execute((tx) => Promise.all([outbox.add(tx, one), outbox.add(tx, two)]));
  const stored = await store.operator.list({ limit: 10 });
  expect(stored).toHaveLength(1);
  expect(added.map(({ id }) => id)).toEqual([stored[0]!.id, stored[0]!.id]);
  expect(added.map(({ duplicate }) => duplicate).sort()).toEqual([false, true]);
  await db.destroy();
});

test("more events than one statement of SQLite takes are added all, or none", async () => {
  const db = new Kysely<Record<string, never>>({
    dialect: new SqliteDialect({ database: new Database(path) }),
    plugins: [new CamelCasePlugin()],
  });
  const outbox = createOutbox({ store, tx: fromKysely });
  const many = Array.from({ length: 3_500 }, (_, n) => draft("many", n));
  await db.transaction().execute(async (tx) => {
    await outbox.add(tx, draft("kept", 1, { idempotencyKey: "k" }));
    await expect(outbox.add(tx, [...many, { ...draft("many", 1), id: many[0]!.id }])).rejects.toMatchObject({ code: "INVALID_DRAFT" });
  });
  expect((await store.operator.status()).states.PENDING).toBe(1);
  await db.transaction().execute((tx) => outbox.add(tx, many));
  expect((await store.operator.status()).states.PENDING).toBe(3_501);
  await db.destroy();
});
