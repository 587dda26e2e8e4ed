import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BetterSQLiteSession } from "drizzle-orm/better-sqlite3/session";
import { BaseSQLiteDatabase, SQLiteSyncDialect } from "drizzle-orm/sqlite-core";
import { drizzle as onProxy } from "drizzle-orm/sqlite-proxy";
import Database from "libsql";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  fromDrizzle,
  fromKnex,
  fromKysely,
  fromMikroOrm,
  fromMysql2,
  fromPg,
  fromPostgresJs,
  fromPrisma,
  fromSequelize,
  fromTypeorm,
} from "../../src/outbox/handles/index.ts";
import type { Store } from "../../src/contracts/store.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { sqlite, type SqliteStore } from "../../src/stores/sqlite/index.ts";
import { draft } from "../support/outbox.ts";
import { refused } from "./body.ts";

describe("Drizzle on SQLite", () => {
  let folder: string;
  let client: Database.Database;
  let store: SqliteStore;
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), "waybill-"));
    const open = (path: string): Database.Database => new Database(path);
    store = sqlite({ path: join(folder, "app.db"), open });
    await store.schema.migrate();
    client = open(join(folder, "app.db"));
  });
  afterEach(async () => {
    client.close();
    await store[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });
  const pending = async (): Promise<number> => (await store.operator.status()).states.PENDING;

  test("with a synchronous driver is refused, and its client takes the events", async () => {
    const dialect = new SQLiteSyncDialect();
    const session = new BetterSQLiteSession(client, dialect, undefined);
    const db = new BaseSQLiteDatabase("sync", dialect, session as never, undefined);
    const handled = createOutbox({ store, tx: fromDrizzle });
    expect(() => db.transaction((tx) => void handled.add(tx, draft("1", 1)))).toThrow(refused("UNSUPPORTED"));
    await expect(handled.transaction(db, async () => undefined)).rejects.toThrow(refused("UNSUPPORTED"));
    expect(await pending()).toBe(0);

    const outbox = createOutbox({ store });
    db.transaction(() => void outbox.add(client, draft("1", 1)));
    expect(await pending()).toBe(1);
    const rolledBack = (): void =>
      db.transaction((tx) => {
        void outbox.add(client, draft("1", 2));
        tx.rollback();
      });
    expect(rolledBack).toThrow("Rollback");
    expect(await pending()).toBe(1);
  });

  test("with a driver whose rows have no names is refused", async () => {
    const db = onProxy(async (sql, values) => {
      const statement = client.prepare(sql);
      return { rows: /^select/i.test(sql) ? statement.raw().all(...(values as unknown[])) : (statement.run(...(values as unknown[])), []) };
    });
    const adding = db.transaction((tx) => createOutbox({ store, tx: fromDrizzle }).add(tx, draft("1", 1)));
    await expect(adding).rejects.toThrow(refused("UNSUPPORTED"));
    expect(await pending()).toBe(0);
  });
});

test("a pg pool's client whose last user left a transaction open is refused, and is not given to the next", async () => {
  const [asked, released]: [string[], unknown[]] = [[], []];
  const client = {
    async query(sql: string) {
      asked.push(sql);
      return { rows: [], command: sql };
    },
    getTransactionStatus: () => "T",
    on: () => undefined,
    off: () => undefined,
    release: (destroy: unknown) => void released.push(destroy),
  };
  const pool = { totalCount: 1, connect: async () => client };
  await expect(fromPg.begin(pool, async () => 1)).rejects.toThrow(refused("ALREADY_IN_TRANSACTION"));
  expect([asked, released]).toEqual([[], [true]]);
});

describe("Prisma's client, by its documented shape", () => {
  const inside = (answer: () => unknown) => ({
    asked: [] as unknown[],
    async $queryRawUnsafe(...given: unknown[]) {
      this.asked.push(given);
      return answer();
    },
  });

  test("runs a statement, and gives its rows", async () => {
    const tx = inside(() => [{ id: "1" }]);
    expect(await fromPrisma(tx).query("SELECT $1", ["one"])).toEqual({ rows: [{ id: "1" }] });
    expect(tx.asked).toEqual([["SELECT $1", "one"]]);
  });

  test("is refused where it is no transaction, or one that has ended", async () => {
    const client = { ...inside(() => []), $connect: () => undefined, $transaction: () => undefined };
    expect(() => fromPrisma(client)).toThrow(refused("NO_TRANSACTION"));
    await expect(fromPrisma.begin({ ...inside(() => []), $transaction: () => undefined }, async () => 1)).rejects.toThrow(
      refused("ALREADY_IN_TRANSACTION"),
    );
    const closed = inside(() => {
      throw Object.assign(new Error("Transaction already closed"), { code: "P2028" });
    });
    await expect(fromPrisma(closed).query("SELECT 1", [])).rejects.toThrow(refused("NO_TRANSACTION"));
  });

  test("tells the database's own code, where the databases' clients have it", async () => {
    const failing = (cause: object): Promise<unknown> => {
      const tx = inside(() => {
        throw Object.assign(new Error("Raw query failed"), { code: "P2010", meta: { driverAdapterError: { cause } } });
      });
      return fromPrisma(tx).query("SELECT 1", []);
    };
    await expect(failing({ originalCode: "23505", originalMessage: "taken" })).rejects.toMatchObject({
      message: "taken",
      code: "23505",
      severity: "ERROR",
    });
    await expect(failing({ originalCode: "1062", originalMessage: "taken" })).rejects.toMatchObject({ errno: 1062, sqlState: "HY000" });
    await expect(failing({ originalCode: "1555", originalMessage: "taken" })).rejects.toMatchObject({ rawCode: 1555 });
    await expect(failing({ kind: "other" })).rejects.toMatchObject({ code: "P2010" });
  });
});

test("a MikroORM whose transactions are not Knex's is refused in words", () => {
  const em = { isInTransaction: () => true, getTransactionContext: () => ({}), flush: async () => undefined };
  expect(() => fromMikroOrm(em)).toThrow(refused("UNSUPPORTED"));
});

test("a library in place of a store's client, and half of it, are refused", () => {
  const half = { url: "postgres://localhost/app" };
  for (const options of [{ tx: fromKnex }, { db: {} }, { tx: () => ({}), db: {} }, { tx: fromKnex, db: null }])
    expect(() => postgres({ ...half, ...options } as never)).toThrow(refused("INVALID_OPTION"));
  expect(() => createOutbox({ store: {} as never, tx: fromKnex })).toThrow(refused("INVALID_OPTION"));
});

describe("what is nothing of a library's", () => {
  const store = postgres({ url: "postgres://localhost/app" });
  const nothing: readonly unknown[] = [7, "tx", {}, () => undefined, { query: 1, rows: [] }, new Date(0)];
  const handles = {
    ...{ fromDrizzle, fromKnex, fromKysely, fromMikroOrm, fromMysql2, fromPg, fromPostgresJs, fromPrisma, fromSequelize, fromTypeorm },
  };

  test.each(Object.entries(handles))("%s refuses in words, and does not take it for a database of its own", async (name, tx) => {
    const outbox = createOutbox({ store, tx: tx as typeof fromDrizzle });
    for (const given of nothing) {
      const adding = async (): Promise<unknown> => outbox.add(given as never, draft("1", 1));
      const added = await adding().catch((error: unknown) => error);
      expect(added, name).toMatchObject({
        code: "NO_TRANSACTION",
        message: expect.stringMatching(/^outbox\.add needs a transaction of /) as string,
      });
      const begun = await outbox.transaction(given as never, async () => undefined).catch((error: unknown) => error);
      expect(begun, name).toMatchObject({
        code: "INVALID_OPTION",
        message: expect.stringMatching(/^outbox\.transaction needs what /) as string,
      });
    }
  });

  test("a database of Drizzle in place of its transaction is named as such", () => {
    const db = onProxy(async () => ({ rows: [] }));
    const outbox = createOutbox({ store, tx: fromDrizzle });
    expect(() => outbox.add(db as never, draft("1", 1))).toThrow("a Drizzle database was given in place of its transaction");
  });
});

describe("an outbox without a handle", () => {
  const stores: readonly (readonly [string, Store<unknown>])[] = Object.entries({
    postgres: postgres({ url: "postgres://localhost/app" }),
    mysql: mysql({ url: "mysql://localhost/app" }),
    sqlite: sqlite({ path: join(tmpdir(), "waybill-none.db") }),
  } as unknown as Record<string, Store<unknown>>);
  const method = (): unknown => undefined;
  /** Their databases and their transactions, by what they have. Some have a `query` like a client's. */
  const foreign: readonly (readonly [string, readonly object[]])[] = [
    ["fromDrizzle", [onProxy(async () => ({ rows: [] }))]],
    ["fromKysely", [{ selectFrom: method, insertInto: method, isTransaction: true, transaction: method }]],
    [
      "fromKnex",
      [Object.assign(() => undefined, { raw: method, select: method, insert: method, transaction: method, queryBuilder: method })],
    ],
    ["fromPrisma", [{ $queryRawUnsafe: method, $transaction: method }]],
    ["fromTypeorm", [{ getRepository: method, transaction: method, query: method }]],
    [
      "fromSequelize",
      [
        { getQueryInterface: method, transaction: method, query: method },
        { sequelize: {}, commit: method, rollback: method },
      ],
    ],
    ["fromMikroOrm", [{ isInTransaction: method, getTransactionContext: method, transactional: method }]],
    [
      "fromPostgresJs",
      [
        Object.assign(() => undefined, { unsafe: method, begin: method }),
        Object.assign(() => undefined, { unsafe: method, savepoint: method }),
      ],
    ],
  ];

  test.each(stores)("names the one that is missing, on %s", async (_, store) => {
    const outbox = createOutbox({ store: store });
    for (const [handle, given] of foreign) {
      for (const one of given) {
        const adding = async (): Promise<unknown> => outbox.add(one, draft("1", 1));
        for (const refusal of [
          await adding().catch((error: unknown) => error),
          await outbox.transaction(one, method).catch((error: unknown) => error),
        ]) {
          expect(refusal, handle).toMatchObject({ code: "INVALID_OPTION", message: expect.stringContaining(`tx: ${handle}`) as string });
          expect((refusal as Error).message).toContain("waybill/handles");
        }
      }
    }
  });

  test.each(stores)("refuses nothing at all in words, on %s", async (_, store) => {
    const outbox = createOutbox({ store: store });
    for (const given of [null, undefined, 7, "tx", {}, { query: {} }]) {
      const adding = async (): Promise<unknown> => outbox.add(given, draft("1", 1));
      expect(await adding().catch((error: unknown) => error)).toMatchObject({ code: "NO_TRANSACTION" });
      expect(await outbox.transaction(given, method).catch((error: unknown) => error)).toMatchObject({ code: "INVALID_OPTION" });
    }
  });
});
