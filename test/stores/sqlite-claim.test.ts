import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { defaultDriver, isBusy, type SqliteDatabase, type SqliteStatement } from "../../src/drivers/sqlite/driver.ts";
import { laneOf } from "../../src/core/lane.ts";
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

const mebibyte = 1024 * 1024;
const insertLarge = (id: string, mib: number): string => insert(id).replace("'{}'", `printf('%.*c', ${mib * mebibyte}, 'a')`);
const request = { limit: 500, narrow: false, bytes: 8 * mebibyte, largest: mebibyte };

test("a claim writes a bounded part of large rows, and takes every other event at once, each aggregate in order", async () => {
  for (let n = 0; n < 24; n++) {
    other.exec(insertLarge(`large-${n}`, 4));
    other.exec(insert(`large-${n}`));
  }
  for (let n = 0; n < 64; n++) other.exec(insert(`small-${n}`));
  const holding = await everyLane();
  const open: string[] = [];
  const taken: (readonly [aggregate: string, unread: number | undefined])[] = [];
  for (;;) {
    const { id, claims, more } = await store.outbox.claim(holding, { ...request, open });
    expect(claims.filter(({ unread }) => unread !== undefined).length, "32 MiB").toBeLessThanOrEqual(8);
    taken.push(...claims.map(({ envelope, unread }) => [envelope.aggregateId, unread] as const));
    if (open.length === 0) expect(taken.filter(([aggregate]) => aggregate.startsWith("small-"))).toHaveLength(64);
    if (id === null && !more) break;
    if (id !== null) open.push(id);
    expect(open.length).toBeLessThan(10);
  }
  expect(taken).toHaveLength(2 * 24 + 64);
  for (let n = 0; n < 24; n++)
    expect(taken.filter(([aggregate]) => aggregate === `large-${n}`).map(([, unread]) => unread)).toEqual([4 * mebibyte, undefined]);
});

test("a claim reads nothing that lies behind the payload of a row which it does not take", async () => {
  for (let n = 0; n < 60; n++) other.exec(insertLarge(`large-${n}`, 8));
  const holding = await everyLane();
  const open: string[] = [];
  const claim = async (): Promise<void> => {
    const { id, claims } = await store.outbox.claim(holding, { ...request, bytes: mebibyte, largest: 64 * mebibyte, open });
    expect(claims.map(({ unread }) => unread)).toEqual([8 * mebibyte]);
    open.push(id!);
  };
  for (let n = 0; n < 20; n++) await claim(); // by now all rows have their lane
  const timed = async (work: () => unknown): Promise<number> => {
    const began = performance.now();
    await work();
    return performance.now() - began;
  };
  const walk = await timed(() => other.prepare("SELECT headers FROM outbox WHERE +seq > 0").all());
  const took = await timed(claim);
  console.log(`a claim took ${took.toFixed(1)} ms, the headers of all rows ${walk.toFixed(1)} ms`);
  expect(took).toBeLessThan(walk / 3);
});

test.each([
  ["parked", { as: "parked", error: "no such \u0000 \ud800 account", code: "HANDLER", release: false }],
  ["to be retried", { as: "retry", error: "no", afterMs: 1_000 }],
  ["held for their topic", { as: "returned", destination: { topic: "order.events", why: "no answer" } }],
] as const)("a hundred events that are %s take as many statements as one", async (_, outcome) => {
  const ofOneLane = [...Array(20_000).keys()].map(String).filter((id) => laneOf("Order", id) === 0);
  const holding = await everyLane();
  const settling = async (ids: readonly string[]): Promise<number> => {
    for (const id of ids) other.exec(insert(id));
    const { id: window, claims } = await store.outbox.claim(holding, { limit: 100, open: [], narrow: false });
    expect(claims).toHaveLength(ids.length);
    let statements = 0;
    before = () => void statements++;
    const { settled } = await store.outbox.settle(
      "r",
      window!,
      claims.map((claim) => ({ claim, ...outcome })),
    );
    before = () => undefined;
    expect(settled).toBe(ids.length);
    return statements;
  };
  expect(await settling(ofOneLane.slice(0, 1))).toBe(await settling(ofOneLane.slice(1, 101)));
});
