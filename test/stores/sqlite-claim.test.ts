import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { defaultDriver, isBusy, type SqliteDatabase, type SqliteStatement } from "../../src/drivers/sqlite/driver.ts";
import { sqlite, type SqliteStore } from "../../src/stores/sqlite/index.ts";

const openFile = await defaultDriver();
const insert = (id: string): string =>
  `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '${id}', 'OrderPlaced', '{}')`;

let folder: string;
let store: SqliteStore;
let other: SqliteDatabase;
/** Called before each statement that the store runs. */
let before: (sql: string) => void;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-claim-"));
  const path = join(folder, "app.db");
  before = () => undefined;
  store = sqlite({ path, open: (name) => watched(openFile(name), (sql) => before(sql)) });
  await store.schema.migrate();
  other = openFile(path);
  other.exec("PRAGMA busy_timeout = 0");
});
afterEach(async () => {
  await store[Symbol.asyncDispose]();
  other.close();
  rmSync(folder, { recursive: true });
});

function watched(db: SqliteDatabase, tell: (sql: string) => void): SqliteDatabase {
  return {
    exec: (sql) => {
      tell(sql);
      return db.exec(sql);
    },
    prepare: (sql) => {
      const statement = db.prepare(sql);
      const told = (of: SqliteStatement): SqliteStatement => ({
        run: (...values) => {
          tell(sql);
          return of.run(...values);
        },
        all: (...values) => {
          tell(sql);
          return of.all(...values);
        },
      });
      return told(statement);
    },
    close: () => db.close(),
  };
}

const everyLane = async (): Promise<{ relay: string; lanes: ReadonlyMap<number, bigint> }> => {
  await store.leases.renew("r", 60_000);
  return { relay: "r", lanes: await store.leases.take("r", [...Array(64).keys()]) };
};

test("all statements of a claim decide on one snapshot: nobody commits between two of them", async () => {
  for (let n = 0; n < 200; n++) other.exec(insert(`order-${n % 3}`));
  const holding = await everyLane();
  let inside = false;
  let [refused, committed] = [0, 0];
  before = (sql) => {
    if (inside) {
      try {
        other.exec(insert("between"));
        committed++;
      } catch (error) {
        expect(isBusy(error)).toBe(true);
        refused++;
      }
    }
    inside = sql === "BEGIN IMMEDIATE" || (inside && sql !== "COMMIT");
  };
  const { claims } = await store.outbox.claim(holding, { limit: 100, open: [], narrow: false });
  before = () => undefined;
  expect(claims).toHaveLength(100);
  expect(refused).toBeGreaterThan(10);
  expect(committed).toBe(0);
});

test("an event beyond the bound is read when its window is committed, and not before", async () => {
  other.exec(insert("large").replace("'{}'", "hex(zeroblob(50000))"));
  other.exec(insert("small"));
  const holding = await everyLane();
  const seen: string[] = [];
  before = (sql) => seen.push(sql);
  const { claims } = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false, bytes: 1_000 });
  expect(claims.map(({ envelope, unread }) => [envelope.data.byteLength, unread])).toEqual([[0, 100_000]]);
  const committed = seen.lastIndexOf("COMMIT");
  expect((await store.outbox.payload(claims[0]!, new AbortController().signal)).byteLength).toBe(100_000);
  const reads = seen.flatMap((sql, at) => (/AS data/.test(sql) ? [at] : []));
  expect(reads).toHaveLength(1);
  expect(reads[0]).toBeGreaterThan(committed);
});
