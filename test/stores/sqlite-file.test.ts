import { existsSync, mkdirSync, mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { walIsSafe } from "../../src/drivers/sqlite/connection.ts";
import { defaultDriver, type SqliteDatabase, type SqliteStatement } from "../../src/drivers/sqlite/driver.ts";
import { sqlite, type SqliteStore } from "../../src/stores/sqlite/index.ts";
import { draft } from "../support/outbox.ts";

let folder: string;
let path: string;
let store: SqliteStore;
let db: SqliteDatabase;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-"));
  path = join(folder, "app.db");
  store = sqlite({ path });
  await store.schema.migrate();
  db = (await defaultDriver())(path);
});
afterEach(async () => {
  await store[Symbol.asyncDispose]();
  try {
    db.close();
  } catch {
    // Some tests close it themselves.
  }
  rmSync(folder, { recursive: true });
});

const openFiles = (): readonly string[] =>
  readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return []; // the folder's own
    }
  });
const all = (sql: string): unknown[] => db.prepare(sql).all();
const everyLane = async (): Promise<{ relay: string; lanes: ReadonlyMap<number, bigint> }> => {
  await store.leases.renew("r", 60_000);
  return {
    relay: "r",
    lanes: await store.leases.take(
      "r",
      Array.from({ length: 64 }, (_, lane) => lane),
    ),
  };
};
const claim = async () => (await store.outbox.claim(await everyLane(), { limit: 100, open: [], narrow: false })).claims;

describe("plain SQL", () => {
  test("an INSERT with the seeds' columns is a full event: the rest comes from the database", async () => {
    db.exec(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'o-1', 'OrderPlaced', '{\"total\":5}')",
    );
    const [row] = all("SELECT * FROM outbox_events") as Record<string, unknown>[];
    expect(row).toMatchObject({
      state: "PENDING",
      published: 0,
      event_version: 1,
      content_type: "application/json",
      headers: "{}",
      retry_count: 0,
      owner: null,
      hold: null,
    });
    expect(row!["id"]).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(row!["created_at"]).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    const [claimed] = await claim();
    expect(claimed!.envelope).toMatchObject({ aggregateId: "o-1", type: "OrderPlaced", contentType: "application/json" });
    expect(Buffer.from(claimed!.envelope.data).toString()).toBe('{"total":5}');
    expect(all("SELECT state, owner FROM outbox_events")).toMatchObject([{ state: "PUBLISHING", owner: "r" }]);
  });

  test("the same idempotency key adds once", () => {
    for (let i = 0; i < 3; i++)
      db.exec(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('Order', 'o-1', 'OrderPlaced', '{}', 'key')",
      );
    expect(all("SELECT count(*) AS n FROM outbox")).toMatchObject([{ n: 1 }]);
  });

  test.each([
    [
      "both payloads",
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, payload_bytes) VALUES ('A', 'a', 'T', 'x', x'00')",
    ],
    ["no payload", "INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('A', 'a', 'T')"],
    ["an empty aggregate id", "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('A', '', 'T', '{}')"],
    [
      "headers that are no JSON",
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, headers) VALUES ('A', 'a', 'T', '{}', 'x')",
    ],
    [
      "an unknown status",
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, status) VALUES ('A', 'a', 'T', '{}', 'SENT')",
    ],
  ])("%s is refused by the table", (_what, sql) => expect(() => db.exec(sql)).toThrow(/constraint/i));

  test("text that is not UTF-8, or holds NUL, is carried byte by byte and harms nothing else", async () => {
    db.exec("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('A', 'a', 'T', CAST(x'ff00fe' AS TEXT))");
    db.exec(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES (CAST(x'ff' AS TEXT), CAST(x'fe' AS TEXT), 'T', '{}')",
    );
    db.exec("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('B', 'b', 'T', '{}')");
    const claims = await claim();
    expect(claims).toHaveLength(3);
    expect(Buffer.from(claims.find(({ envelope }) => envelope.aggregateId === "a")!.envelope.data).toString("hex")).toBe("ff00fe");
    expect(await store.operator.list({ limit: 10 })).toHaveLength(3);
  });
});

describe("the user's own transaction", () => {
  test("a synchronous one: committed with the event, and rolled back when adding throws", () => {
    const outbox = createOutbox({ store });
    db.exec("CREATE TABLE orders (id TEXT PRIMARY KEY)");
    const place = (id: string, payload: unknown): void => {
      db.exec("BEGIN IMMEDIATE");
      try {
        db.prepare("INSERT INTO orders VALUES (?)").run(id);
        void outbox.add(db, { aggregateType: "Order", aggregateId: id, type: "OrderPlaced", payload });
        db.exec("COMMIT");
      } catch (error) {
        db.exec("ROLLBACK");
        throw error;
      }
    };
    place("o-1", {});
    expect(() => place("o-2", 1n)).toThrow(/JSON/);
    expect(all("SELECT id FROM orders")).toMatchObject([{ id: "o-1" }]);
    expect(all("SELECT aggregate_id FROM outbox")).toMatchObject([{ aggregate_id: "o-1" }]);
  });

  test("rolled back to a savepoint, the event is gone", async () => {
    const outbox = createOutbox({ store });
    db.exec("BEGIN IMMEDIATE");
    await outbox.add(db, draft("kept", 1));
    db.exec("SAVEPOINT s");
    await outbox.add(db, draft("gone", 1));
    db.exec("ROLLBACK TO s");
    db.exec("COMMIT");
    expect(all("SELECT aggregate_id FROM outbox")).toMatchObject([{ aggregate_id: "kept" }]);
  });

  test("a handle without one, with one that has ended, or closed, is refused and nothing is written", async () => {
    const outbox = createOutbox({ store });
    const refused = expect.objectContaining({ code: "NO_TRANSACTION" }) as Error;
    expect(() => outbox.add(db, draft("a", 1))).toThrow(refused);
    db.exec("BEGIN; COMMIT");
    expect(() => outbox.add(db, draft("a", 1))).toThrow(refused);
    expect(all("SELECT count(*) AS n FROM outbox")).toMatchObject([{ n: 0 }]);
    db.close();
    expect(() => outbox.add(db, draft("a", 1))).toThrow(refused);
  });

  test("what is no handle of SQLite begins no transaction, and the message names it", async () => {
    const outbox = createOutbox({ store });
    for (const [db, said] of [
      [null, "not null"],
      [undefined, "not undefined"],
      [{}, "not an object"],
    ] as const) {
      const run = outbox.transaction(db as never, () => undefined);
      await expect(run).rejects.toMatchObject({ code: "INVALID_OPTION", message: expect.stringContaining(said) as string });
    }
  });

  test("a client that cannot tell whether it is in a transaction is asked by a BEGIN", async () => {
    const outbox = createOutbox({ store });
    const plain: SqliteDatabase = { exec: (sql) => db.exec(sql), prepare: (sql) => db.prepare(sql), close: () => db.close() };
    expect(() => outbox.add(plain, draft("a", 1))).toThrow(/no open transaction/);
    db.exec("BEGIN");
    await outbox.add(plain, draft("a", 1));
    db.exec("COMMIT");
    expect(all("SELECT count(*) AS n FROM outbox")).toMatchObject([{ n: 1 }]);
  });

  describe("several adds through one handle", () => {
    const idOf = (nth: number): string => `01890000-0000-7000-8000-00000000000${nth}`;
    /** Looks at what the handle prepares, and may put something else in its place. */
    const watch = (of: (statement: SqliteStatement, sql: string) => SqliteStatement = (statement) => statement): (() => number) => {
      let count = 0;
      const { prepare } = db;
      db.prepare = (sql) => {
        if (!sql.startsWith("INSERT INTO outbox")) return prepare.call(db, sql);
        count += 1;
        return of(prepare.call(db, sql), sql);
      };
      return () => count;
    };
    const adding = async (handle: SqliteDatabase, version: number, end = "COMMIT"): Promise<void> => {
      handle.exec("BEGIN");
      await createOutbox({ store }).add(handle, { ...draft("a", version), id: idOf(version) });
      handle.exec(end);
    };

    test("prepare their insert once, and anew after it has failed", async () => {
      const count = watch();
      for (const version of [1, 2, 3]) await adding(db, version);
      expect(count()).toBe(1);
      await expect(adding(db, 3)).rejects.toThrow(idOf(3));
      db.exec("ROLLBACK");
      await adding(db, 4);
      expect(count()).toBe(2);
      expect(all("SELECT id FROM outbox ORDER BY seq")).toMatchObject([1, 2, 3, 4].map((nth) => ({ id: idOf(nth) })));
    });

    const behind = { current: (): SqliteDatabase => db };
    class Handle implements SqliteDatabase {
      exec = (sql: string): unknown => behind.current().exec(sql);
      prepare = (sql: string): SqliteStatement => behind.current().prepare(sql);
      close = (): void => undefined;
    }
    test.each<[string, () => SqliteDatabase]>([
      ["an object", () => ({ ...new Handle() })],
      ["a Proxy", () => new Proxy(db, { get: (_, name) => Reflect.get(new Handle(), name) as unknown })],
      [
        "a Proxy of the connection",
        () =>
          new Proxy(db, {
            get: (_, name) =>
              ((of) => (typeof of === "function" ? (of as () => void).bind(behind.current()) : of))(
                Reflect.get(behind.current(), name) as unknown,
              ),
          }),
      ],
    ])("go to the connection that the handle has at the time, where the handle is %s of the application's", async (_, make) => {
      const other = (await defaultDriver())(path);
      const handle = make();
      behind.current = () => db;
      await adding(handle, 1);
      behind.current = () => other;
      await adding(handle, 2, "ROLLBACK");
      expect(all("SELECT id FROM outbox")).toMatchObject([{ id: idOf(1) }]);
      other.close();
    });

    test("one inside another, as a function in a trigger may do it, run statements of their own", async () => {
      let inner: (() => void) | null = null;
      const running = new Set<SqliteStatement>();
      watch((statement) => {
        const own: SqliteStatement = {
          all: (...values) => statement.all(...values),
          run(...values) {
            expect(running).not.toContain(own);
            running.add(own);
            inner?.();
            running.delete(own);
            return statement.run(...values);
          },
        };
        return own;
      });
      await adding(db, 1);
      inner = () => {
        inner = null;
        void createOutbox({ store }).add(db, { ...draft("b", 1), id: idOf(9) });
      };
      await adding(db, 2);
      await adding(db, 3);
      expect(all("SELECT id FROM outbox")).toHaveLength(4);
    });

    test("go on when the handle was closed and opened again between two of them", async () => {
      let opened = 0;
      /** As node:sqlite does it: the same handle, and its statements are no longer of use. */
      watch((statement) => {
        const of = opened;
        const still = (): SqliteStatement => {
          if (of !== opened) throw Object.assign(new Error("statement has been finalized"), { code: "ERR_INVALID_STATE" });
          return statement;
        };
        return { run: (...values) => still().run(...values), all: (...values) => still().all(...values) };
      });
      for (const version of [1, 2, 3]) {
        await adding(db, version);
        opened += 1;
      }
      expect(all("SELECT seq FROM outbox")).toHaveLength(3);
    });

    test("that a function of the application refuses are refused once, and not tried again", async () => {
      let calls = 0;
      watch((statement) => ({
        all: (...values) => statement.all(...values),
        run(...values) {
          calls += 1;
          if (calls === 2) throw new Error("not this one");
          return statement.run(...values);
        },
      }));
      await adding(db, 1);
      await expect(adding(db, 2)).rejects.toThrow("not this one");
      db.exec("ROLLBACK");
      expect(calls).toBe(2);
    });

    test("go on when the table was altered between two of them", async () => {
      const outbox = createOutbox({ store });
      const add = async (version: number): Promise<void> => {
        db.exec("BEGIN");
        await outbox.add(db, draft("a", version));
        db.exec("COMMIT");
      };
      await add(1);
      const other = (await defaultDriver())(path);
      other.exec("ALTER TABLE outbox ADD COLUMN tenant TEXT DEFAULT 'ours'");
      other.close();
      await add(2);
      expect(all("SELECT tenant FROM outbox")).toMatchObject([{ tenant: "ours" }, { tenant: "ours" }]);
    });

    test.runIf(existsSync("/proc/self/fd"))("leave nothing behind that keeps the file of a closed handle open", async () => {
      const outbox = createOutbox({ store });
      db.exec("BEGIN");
      await outbox.add(db, draft("a", 1));
      db.exec("COMMIT");
      await store[Symbol.asyncDispose]();
      db.close();
      setFlagsFromString("--expose-gc");
      const gc = runInNewContext("gc") as () => void;
      await expect.poll(() => (gc(), openFiles().filter((name) => name.startsWith(folder)))).toEqual([]);
    });
  });

  test("events of an open transaction are not claimed, nor seen by status", async () => {
    const outbox = createOutbox({ store });
    db.exec("BEGIN");
    await outbox.add(db, draft("a", 1));
    expect((await store.operator.status()).states.PENDING).toBe(0);
    db.exec("ROLLBACK");
    expect(await claim()).toEqual([]);
  });
});

describe("a handler's handle", () => {
  test("is of no use once its transaction has ended, so that late work cannot fall into another's", async () => {
    db.exec("CREATE TABLE effects (id TEXT)");
    let late: SqliteDatabase | undefined;
    await store.inbox.once({ consumer: "c", id: "1" }, 1, (tx) => {
      late = tx;
      tx.prepare("INSERT INTO effects VALUES (?)").run("on time");
    });
    expect(() => late!.exec("INSERT INTO effects VALUES ('late')")).toThrow(/ended/);
    await store.inbox.once({ consumer: "c", id: "2" }, 1, () => {
      expect(() => late!.prepare("INSERT INTO effects VALUES ('late')")).toThrow(/ended/);
    });
    expect(all("SELECT id FROM effects")).toMatchObject([{ id: "on time" }]);
  });

  test("takes no statement after a ROLLBACK of the handler's own: it would commit by itself", async () => {
    db.exec("CREATE TABLE effects (id TEXT)");
    await expect(
      store.inbox.once({ consumer: "c", id: "1" }, 1, (tx) => {
        const write = tx.prepare("INSERT INTO effects VALUES (?)");
        tx.exec("ROLLBACK");
        expect(() => tx.exec("INSERT INTO effects VALUES ('alone')")).toThrow(/transaction ended inside/);
        write.run("alone");
      }),
    ).rejects.toMatchObject({ code: "NO_TRANSACTION" });
    expect(all("SELECT * FROM effects")).toEqual([]);
    expect(all("SELECT * FROM inbox")).toEqual([]);
  });

  test("that ends the transaction itself loses nothing and keeps nothing: the event is not marked", async () => {
    db.exec("CREATE TABLE effects (id TEXT)");
    await expect(
      store.inbox.once({ consumer: "c", id: "1" }, 1, (tx) => void tx.exec("ROLLBACK; INSERT INTO effects VALUES ('alone')")),
    ).rejects.toMatchObject({ code: "TRANSACTION_LOST" });
    expect(all("SELECT * FROM inbox")).toEqual([]);
  });

  test("that ends the transaction and begins another keeps nothing either: the mark is not in that one", async () => {
    db.exec("CREATE TABLE effects (id TEXT)");
    await expect(
      store.inbox.once({ consumer: "c", id: "1" }, 1, (tx) => void tx.exec("ROLLBACK; BEGIN; INSERT INTO effects VALUES ('unmarked')")),
    ).rejects.toMatchObject({ code: "TRANSACTION_LOST" });
    expect(all("SELECT * FROM inbox")).toEqual([]);
    expect(all("SELECT * FROM effects")).toEqual([]);
  });
});

describe("the file", () => {
  const fresh = (name: string): SqliteStore => sqlite({ path: join(folder, name) });

  test("that is no database is refused and left as it is", async () => {
    writeFileSync(join(folder, "bad.db"), "this is not a database ".repeat(100));
    await expect(fresh("bad.db").schema.migrate()).rejects.toMatchObject({ code: "STORE_CORRUPT" });
  });

  test("without tables says how to make them", async () => {
    await expect(fresh("empty.db").schema.check()).rejects.toMatchObject({
      code: "NOT_MIGRATED",
      message: expect.stringContaining("waybill migrate") as string,
    });
    const other = (await defaultDriver())(join(folder, "empty.db"));
    other.exec("BEGIN");
    expect(() => createOutbox({ store: fresh("empty.db") }).add(other, draft("a", 1))).toThrow(
      expect.objectContaining({ code: "NOT_MIGRATED" }) as Error,
    );
    other.close();
  });

  test("with tables of a newer version is refused, and nothing is written", async () => {
    db.exec("UPDATE waybill_meta SET version = 99");
    for (const refused of [store.schema.check(), store.schema.migrate()])
      await expect(refused).rejects.toMatchObject({ code: "SCHEMA_NEWER" });
    db.exec("BEGIN");
    expect(() => createOutbox({ store: sqlite({ path }) }).add(db, draft("a", 1))).toThrow(
      expect.objectContaining({ code: "SCHEMA_NEWER" }) as Error,
    );
    db.exec("ROLLBACK");
    expect(all("SELECT count(*) AS n FROM outbox")).toMatchObject([{ n: 0 }]);
  });

  test("in a folder that does not exist, or that is a folder itself, is refused by name", async () => {
    await expect(fresh("none/app.db").schema.migrate()).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("none/app.db") as string,
    });
    mkdirSync(join(folder, "folder.db"));
    await expect(fresh("folder.db").schema.migrate()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(existsSync(join(folder, "none"))).toBe(false);
  });

  test("cannot be in memory, where nobody else could read it", () => {
    for (const name of ["", ":memory:", "file:x?mode=memory"]) expect(() => sqlite({ path: name })).toThrow(/memory\(\)/);
  });

  test("is migrated by several processes' worth of connections at once, and again, to the same tables", async () => {
    const stores = Array.from({ length: 4 }, () => fresh("shared.db"));
    const applied = await Promise.all(stores.map((each) => each.schema.migrate()));
    expect(applied.flat()).toEqual([1]);
    for (const each of stores) await each[Symbol.asyncDispose]();
  });

  test("printed, the migration makes the same tables", async () => {
    const printed = (await defaultDriver())(join(folder, "printed.db"));
    printed.exec(store.schema.print());
    const tables = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name";
    expect(printed.prepare(tables).all()).toEqual(all(tables));
    printed.close();
    await expect(fresh("printed.db").schema.check()).resolves.toBeUndefined();
  });

  test("is never in WAL mode under a library whose WAL may lose a reset", () => {
    const [{ journal_mode: mode }] = all("PRAGMA journal_mode") as [{ journal_mode: string }];
    const [{ version }] = all("SELECT sqlite_version() AS version") as [{ version: string }];
    expect(mode).toBe(walIsSafe(version) ? "wal" : "delete");
  });

  test.each([
    ["3.44.5", false],
    ["3.44.6", true],
    ["3.45.1", false],
    ["3.50.6", false],
    ["3.50.7", true],
    ["3.51.2", false],
    ["3.51.3", true],
    ["3.53.4", true],
    ["4.0.0", true],
  ])("SQLite %s: WAL safe %s", (version, safe) => expect(walIsSafe(version)).toBe(safe));

  test("in WAL mode is taken out of it by a library that must not use it", async () => {
    const wal = (await defaultDriver())(join(folder, "wal.db"));
    wal.exec("PRAGMA journal_mode = WAL; CREATE TABLE t (a)");
    wal.close();
    const opened = fresh("wal.db");
    await opened.schema.migrate();
    const after = (await defaultDriver())(join(folder, "wal.db"));
    const [{ journal_mode: mode }] = after.prepare("PRAGMA journal_mode").all() as [{ journal_mode: string }];
    const [{ version }] = after.prepare("SELECT sqlite_version() AS version").all() as [{ version: string }];
    expect(mode).toBe(walIsSafe(version) ? "wal" : "delete");
    after.close();
    await opened[Symbol.asyncDispose]();
  });
});

test("a seat is renewed before the handlers that wait for the file: it does not run out behind them", async () => {
  const done: string[] = [];
  const handlers = ["a", "b", "c"].map((id) =>
    store.inbox.once({ consumer: "c", id }, 1, async () => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      done.push(id);
    }),
  );
  const renewal = store.inbox.sit({ consumer: "c", topic: "t", owner: "o" }, 60_000).then(() => done.push("seat"));
  await Promise.all([...handlers, renewal]);
  expect(done).toEqual(["a", "seat", "b", "c"]);
});
