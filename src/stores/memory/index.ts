import type { Store } from "../../contracts/store.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { checkOptions } from "../../core/options.ts";
import { createWake } from "../../core/wake.ts";
import { createDatabase, type MemoryDb, type MemoryTx } from "./database.ts";
import { createConsumers } from "./consumers.ts";
import { createInbox, type InboxTables } from "./inbox.ts";
import { createLeaseStore } from "./lease-store.ts";
import { createLetters } from "./letters.ts";
import { createOperator } from "./operator.ts";
import { createOutboxStore } from "./outbox-store.ts";
import { createTables, schema } from "./tables.ts";
import { createWriter } from "./writer.ts";

export type { MemoryDb, MemoryTx } from "./database.ts";

export interface MemoryOptions {
  readonly clock?: Clock;
}

export interface MemoryStore extends Store<MemoryDb, MemoryTx> {
  /** Begins the user's transactions. */
  readonly db: MemoryDb;
}

/** A store within one process: for tests, simulations and trying things out. Nothing outlives the process. */
export function memory(options: MemoryOptions = {}): MemoryStore {
  checkOptions("memory", options, ["clock"]);
  const clock = options.clock ?? systemClock;
  const tables = createTables();
  const wake = createWake();
  const database = createDatabase(tables, clock, wake);
  const { db } = database;
  const kept: InboxTables = { seats: new Map(), marks: new Map(), failures: new Map() };
  return {
    name: "memory",
    db,
    schema,
    writer: createWriter(tables, database, clock),
    transactor: {
      transaction: async (given, work) => {
        if (given !== db) throw new WaybillError("INVALID_OPTION", "this is not the db handle of this memory store: use store.db");
        return db.transaction(work);
      },
    },
    outbox: createOutboxStore(tables, clock),
    leases: createLeaseStore(tables, clock),
    inbox: createInbox(database, clock, tables, kept),
    letters: createLetters(tables, clock),
    consumers: createConsumers(tables, kept, clock),
    operator: createOperator(tables, clock),
    wake,
    [Symbol.asyncDispose]: async () => undefined,
  };
}
