import { describe, expect, test } from "vitest";
import {
  inboxSuite,
  leaseStoreSuite,
  operatorSuite,
  outboxStoreSuite,
  schemaSuite,
  type OpenTransaction,
  type StoreHarness,
  type StoreSuite,
} from "../../src/conformance/index.ts";
import { memory, type MemoryDb, type MemoryTx } from "../../src/stores/memory/index.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import { keepsItsPromises } from "./history.ts";

const start = Date.UTC(2030, 0, 1);

async function create(): Promise<StoreHarness<MemoryDb, MemoryTx>> {
  const clock = manualClock(start);
  const store = memory({ clock });
  const { db } = store;
  return {
    store,
    db,
    clock,
    begin: () => begin(db),
    effect: (tx, name) => {
      const table = tx.table<string, number>("effects");
      table.set(name, (table.get(name) ?? 0) + 1);
    },
    effects: async () => [...db.table<string, number>("effects")].flatMap(([name, times]) => Array<string>(times).fill(name)),
    audit: async () => db.audit().map(({ who, action, events }) => ({ who, action, events })),
    letters: async () => db.letters(),
    close: async () => store[Symbol.asyncDispose](),
  };
}

function begin(db: MemoryDb): Promise<OpenTransaction<MemoryTx>> {
  return new Promise((opened) => {
    const ended: Promise<unknown> = db.transaction(
      (tx) =>
        new Promise<void>((commit, undo) => {
          opened({
            tx,
            commit: async () => {
              commit();
              await ended;
            },
            rollback: async () => {
              undo(new Error("rolled back"));
              await ended.catch(() => undefined);
            },
          });
        }),
    );
    ended.catch(() => undefined);
  });
}

const suite: StoreSuite<MemoryDb, MemoryTx> = {
  // Without `skip`: what this store cannot do is no lack of the machine that the tests run on.
  test: (name, body) => test(name, body),
  create,
  can: {
    claimBesideWriter: true,
    parallelWriters: false,
    loseTransaction: false,
    commitInside: false,
    uniqueIds: true,
    hostileRows: false,
  },
};

describe("memory", () => {
  outboxStoreSuite(suite);
  leaseStoreSuite(suite);
  inboxSuite(suite);
  operatorSuite(suite);
  schemaSuite(suite);

  test("any history keeps the promises", () => keepsItsPromises(create, { numRuns: 60 }));

  test("a table changes for others with the commit, and not at all with a rollback", async () => {
    const { db } = memory();
    await db.transaction((tx) => {
      tx.table<string, number>("stock").set("apple", 1);
      expect(db.table("stock").size).toBe(0);
    });
    const undone = db.transaction((tx) => {
      tx.table<string, number>("stock").set("apple", 2).set("pear", 3);
      throw new Error("no");
    });
    await expect(undone).rejects.toThrow("no");
    expect([...db.table("stock")]).toEqual([["apple", 1]]);
  });

  test("a table kept from a transaction that has ended changes nothing", async () => {
    const { db } = memory();
    let kept: { tx: MemoryTx; stock: Map<string, number> } | undefined;
    await db.transaction((tx) => void (kept = { tx, stock: tx.table("stock") }));
    kept!.stock.set("apple", 1);
    expect(db.table("stock").size).toBe(0);
    expect(() => kept!.tx.table("stock")).toThrow(expect.objectContaining({ code: "NO_TRANSACTION" }) as Error);
  });

  test("transactions run one after the other, and see what the last one did", async () => {
    const { db } = memory();
    const count = async (tx: MemoryTx): Promise<void> => {
      const table = tx.table<string, number>("count");
      const before = table.get("n") ?? 0;
      await Promise.resolve();
      table.set("n", before + 1);
    };
    await Promise.all(Array.from({ length: 50 }, () => db.transaction(count)));
    expect(db.table("count").get("n")).toBe(50);
  });

  test("a transaction inside another, a foreign handle and an unknown option are refused", async () => {
    const store = memory();
    const nested = store.db.transaction(() => store.db.transaction(() => undefined));
    await expect(nested).rejects.toMatchObject({ code: "ALREADY_IN_TRANSACTION" });
    await expect(store.transactor.transaction(memory().db, () => undefined)).rejects.toMatchObject({ code: "INVALID_OPTION" });
    const foreign = memory().db.transaction((tx) => store.writer.append(tx, []));
    await expect(foreign).rejects.toMatchObject({ code: "NO_TRANSACTION" });
    expect(() => memory({ clok: manualClock() } as object)).toThrow(expect.objectContaining({ code: "INVALID_OPTION" }) as Error);
  });

  test("a refused append throws before it returns, and a commit with events is a hint to the relay", async () => {
    const store = memory();
    expect(() => store.writer.append(store.db as unknown as MemoryTx, [])).toThrow(
      expect.objectContaining({ code: "NO_TRANSACTION" }) as Error,
    );
    expect(store.writer.synchronous).toBe(true);
    const waiting = store.wake.wait(manualClock(), 60_000, new AbortController().signal);
    await store.db.transaction((tx) => store.writer.append(tx, [anEvent]));
    expect(await waiting).toBe(true);
  });
});

const anEvent = {
  id: "00000000-0000-7000-8000-000000000001",
  aggregateType: "Order",
  aggregateId: "order-1",
  type: "OrderPlaced",
  eventVersion: 1,
  payload: "{}",
  contentType: "application/json",
  headers: {},
  idempotencyKey: null,
  availableAt: null,
};
