import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import {
  inboxSuite,
  leaseStoreSuite,
  operatorSuite,
  outboxStoreSuite,
  schemaSuite,
  type AuditLine,
  type StoreHarness,
  type StoreSuite,
} from "../../src/conformance/index.ts";
import { defaultDriver, type SqliteDatabase } from "../../src/drivers/sqlite/driver.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { keepsItsPromises } from "./history.ts";
import { writeHostile } from "./sqlite-hostile.ts";

const openAny = await defaultDriver();

/** Some clients take `?1` for a name and refuse a value for it: better-sqlite3, and node:sqlite in early versions of Node 22. */
const open: typeof openAny = (name) => {
  const db = openAny(name);
  const prepare = db.prepare.bind(db);
  db.prepare = (sql) => {
    if (/\?\d/.test(sql)) throw new Error(`numbered values are not for every client: ${sql}`);
    return prepare(sql);
  };
  return db;
};

interface FileHarness extends StoreHarness<SqliteDatabase, SqliteDatabase> {
  readonly path: string;
}

async function create(): Promise<FileHarness> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-store-"));
  const path = join(folder, "app.db");
  const clock = manualClock(Date.now()); // created_at is SQLite's own clock
  const store = sqlite({ path, clock, open });
  await store.schema.migrate();
  const opened: SqliteDatabase[] = [];
  const connect = (): SqliteDatabase => {
    const db = open(path);
    db.exec("PRAGMA busy_timeout = 5000");
    opened.push(db);
    return db;
  };
  const db = connect();
  db.exec("CREATE TABLE effects (name TEXT NOT NULL)");
  return {
    path,
    store,
    db,
    clock,
    async begin() {
      const tx = connect();
      tx.exec("BEGIN IMMEDIATE");
      return {
        tx,
        commit: async () => void tx.exec("COMMIT"),
        rollback: async () => void tx.exec("ROLLBACK"),
      };
    },
    effect: (tx, name) => void tx.prepare("INSERT INTO effects (name) VALUES (?)").run(name),
    effects: async () => (db.prepare("SELECT name FROM effects").all() as { name: string }[]).map(({ name }) => name),
    lose: (tx) => void tx.exec("ROLLBACK"),
    commitInside: (tx) => void tx.exec("COMMIT"),
    hostile: async () => writeHostile(db),
    letters: async () =>
      (db.prepare("SELECT * FROM waybill_letters ORDER BY seq").all() as Record<string, never>[]).map((row) => ({
        consumer: row["consumer"]!,
        topic: row["topic"]!,
        id: row["id"]!,
        digest: row["digest"]!,
        aggregateType: row["aggregate_type"]!,
        aggregateId: row["aggregate_id"]!,
        eventType: row["event_type"]!,
        envelope: row["envelope"]!,
        data: row["data"]!,
        raw: row["raw"]!,
        whole: row["whole"]!,
        errorCode: row["error_code"]!,
        error: row["error"]!,
        errorDetail: row["error_detail"]!,
        attempts: row["attempts"]!,
        handlerVersion: row["handler_version"]!,
      })),
    audit: async () =>
      db
        .prepare("SELECT who, action, events FROM waybill_audit ORDER BY rowid")
        .all()
        .map((line) => ({ ...(line as AuditLine) })),
    async close() {
      await store[Symbol.asyncDispose]();
      for (const each of opened) each.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const suite: StoreSuite<SqliteDatabase, SqliteDatabase> = {
  // Without `skip`: what this store cannot do is no lack of the machine that the tests run on.
  test: (name, body) => test(name, body),
  create,
  can: {
    claimBesideWriter: false,
    parallelWriters: false,
    loseTransaction: true,
    commitInside: true,
    uniqueIds: true,
    hostileRows: true,
  },
};

describe("sqlite", () => {
  outboxStoreSuite(suite);
  leaseStoreSuite(suite);
  inboxSuite(suite);
  operatorSuite(suite);
  schemaSuite(suite);

  test("any history keeps the promises", () => keepsItsPromises(create, { numRuns: 4 }));

  const own = (name: string, body: (harness: FileHarness) => Promise<void>): void => {
    test(name, async () => {
      const harness = await create();
      try {
        await body(harness);
      } finally {
        await harness.close();
      }
    });
  };

  own("any program that can run SQL can add an event", async ({ store, db }) => {
    const insert =
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('Order', 'order-1', 'OrderPlaced', '{\"n\": 1}', 'k')";
    db.exec(insert);
    db.exec(insert);
    db.exec(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload_bytes) VALUES ('Order', 'order-1', 'OrderPlaced', x'00ff')",
    );
    await store.leases.renew("r1", 60_000);
    const lanes = await store.leases.take("r1", [...Array(64).keys()]);
    const { claims } = await store.outbox.claim({ relay: "r1", lanes }, { limit: 10, open: [], narrow: false });
    expect(claims.map(({ envelope }) => Buffer.from(envelope.data).toString("latin1"))).toEqual(['{"n": 1}', "\x00\xff"]);
    for (const { envelope } of claims) {
      expect(envelope).toMatchObject({ aggregateId: "order-1", type: "OrderPlaced", eventVersion: 1, headers: {} });
      expect(envelope.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/);
    }
    expect(claims[0]!.envelope).toMatchObject({ contentType: "application/json", idempotencyKey: "k" });
  });

  own("the view shows what an operator is shown", async ({ store, db }) => {
    db.exec(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'a', 'E', '1'), ('Order', 'a', 'E', '2'), ('Order', 'b', 'E', '3'), ('Order', 'c', 'E', '4')",
    );
    await store.leases.renew("r1", 60_000);
    const holding = { relay: "r1", lanes: await store.leases.take("r1", [...Array(64).keys()]) };
    const { id, claims } = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false });
    const [a, , b] = claims;
    await store.outbox.settle("r1", id!, [
      { claim: a!, as: "retry", afterMs: 60_000, error: "no" },
      { claim: b!, as: "published" },
    ]);
    const view = db.prepare("SELECT id, state, published, owner, hold FROM outbox_events ORDER BY seq DESC").all() as Record<
      string,
      unknown
    >[];
    const listed = await store.operator.list({ limit: 10 });
    expect(view.map((row) => ({ ...row, published: Number(row["published"]) }))).toEqual(
      listed.map(({ id: event, state, owner, hold }) => ({ id: event, state, published: state === "PUBLISHED" ? 1 : 0, owner, hold })),
    );
    expect(view.map(({ state }) => state)).toEqual(["PUBLISHING", "PUBLISHED", "PUBLISHING", "FAILED"]);
  });

  own("two stores on one file share the work", async ({ path, store, db, clock }) => {
    const values = Array.from({ length: 300 }, (_, n) => `('Order', 'order-${n % 40}', 'E', '${n}')`);
    db.exec(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ${values.join(", ")}`);
    const other = sqlite({ path, clock: manualClock(clock.now()) });
    try {
      const drain = async (name: string, { leases, outbox }: typeof store, lanes: number[]): Promise<string[]> => {
        await leases.renew(name, 60_000);
        const holding = { relay: name, lanes: await leases.take(name, lanes) };
        const seen: string[] = [];
        for (;;) {
          const { id, claims } = await outbox.claim(holding, { limit: 20, open: [], narrow: false });
          if (id === null) return seen;
          seen.push(...claims.map(({ envelope }) => envelope.id));
          await outbox.settle(
            name,
            id,
            claims.map((claim) => ({ claim, as: "published" })),
          );
        }
      };
      const even = [...Array(64).keys()].filter((lane) => lane % 2 === 0);
      const [one, two] = await Promise.all([
        drain("r1", store, even),
        drain(
          "r2",
          other,
          [...Array(64).keys()].filter((lane) => lane % 2 === 1),
        ),
      ]);
      expect(one.length + two.length).toBe(300);
      expect(new Set([...one, ...two]).size).toBe(300);
      expect((await other.operator.status()).states.PUBLISHED).toBe(300);
    } finally {
      await other[Symbol.asyncDispose]();
    }
  });

  own("a transaction inside another is refused, and does not wait for itself", async ({ store, db }) => {
    const nested = store.transactor.transaction(db, () => store.transactor.transaction(db, () => undefined));
    const stuck = new Promise((_, reject) => setTimeout(() => reject(new Error("it waits for itself")), 3_000));
    await expect(Promise.race([nested, stuck])).rejects.toMatchObject({ code: "ALREADY_IN_TRANSACTION" });
  });

  own("tables that are missing or newer than this code are told apart", async ({ path, store, db }) => {
    const empty = sqlite({ path: `${path}.empty` });
    await expect(empty.schema.check()).rejects.toMatchObject({ code: "NOT_MIGRATED" });
    expect(await empty.schema.migrate()).toEqual([1]);
    await empty.schema.check();
    await empty[Symbol.asyncDispose]();
    db.exec("UPDATE waybill_meta SET version = 999");
    await expect(store.schema.check()).rejects.toMatchObject({ code: "SCHEMA_NEWER" });
    await expect(store.schema.migrate()).rejects.toMatchObject({ code: "SCHEMA_NEWER" });
  });
});
