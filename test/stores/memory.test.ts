import { describe, expect, test } from "vitest";
import { inboxSuite, leaseStoreSuite, operatorSuite, outboxStoreSuite, schemaSuite, type OpenTransaction, type StoreHarness, type StoreSuite } from "../../src/conformance/index.ts";
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
  test,
  create,
  can: { claimBesideWriter: true, parallelWriters: false, loseTransaction: false },
};

describe("memory", () => {
  outboxStoreSuite(suite);
  leaseStoreSuite(suite);
  inboxSuite(suite);
  operatorSuite(suite);
  schemaSuite(suite);

  test("any history keeps the promises", () => keepsItsPromises(create, { numRuns: 60 }));
});
