import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Operator } from "../../src/contracts/operator.ts";
import type { Store } from "../../src/contracts/store.ts";
import type { Clock } from "../../src/core/clock.ts";
import type { Draft, State } from "../../src/core/event.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { memory } from "../../src/stores/memory/index.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";

/** A migrated store with one writer, whatever database it is. */
export interface Bench extends AsyncDisposable {
  readonly store: Pick<Store<never>, "outbox" | "leases" | "operator" | "schema" | "wake">;
  readonly operator: Operator;
  /** Adds drafts in one committed transaction. */
  add(...drafts: readonly Draft[]): Promise<void>;
  stateOf(id: string): Promise<State>;
}

export const benches: Readonly<Record<string, (clock: Clock) => Promise<Bench>>> = {
  memory: async (clock) => {
    const store = memory({ clock });
    await store.schema.migrate();
    return bench(
      store,
      (work) => store.transactor.transaction(store.db, (tx) => work(tx)),
      () => undefined,
      clock,
    );
  },
  sqlite: async (clock) => {
    // In memory where the machine allows: these tests are about order and time, not about the disk.
    const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "waybill-"));
    const path = join(folder, "app.db");
    const store = sqlite({ path, clock });
    await store.schema.migrate();
    const db = (await defaultDriver())(path);
    return bench(
      store,
      (work) => store.transactor.transaction(db, (tx) => work(tx)),
      () => {
        db.close();
        rmSync(folder, { recursive: true });
      },
      clock,
    );
  },
};

function bench<Db, Tx>(
  store: Store<Db, Tx>,
  transaction: (work: (tx: Tx) => Promise<unknown>) => Promise<unknown>,
  close: () => void,
  clock: Clock,
): Bench {
  const outbox = createOutbox({ store, clock });
  return {
    store,
    operator: store.operator,
    add: async (...drafts) => void (await transaction((tx) => outbox.add(tx, drafts))),
    async stateOf(id) {
      const record = await store.operator.show(id);
      if (record === null) throw new Error(`no event ${id}`);
      return record.state;
    },
    async [Symbol.asyncDispose]() {
      await store[Symbol.asyncDispose]();
      close();
    },
  };
}

let made = 0;
/** An id of our own, so that tests can name events. */
function eventId(): string {
  return `00000000-0000-4000-8000-${(++made).toString(16).padStart(12, "0")}`;
}

export function draft(aggregateId: string, n: number, more: Partial<Draft> = {}): Draft & { readonly id: string } {
  return { id: eventId(), aggregateType: "Order", aggregateId, type: "Changed", payload: { n }, ...more };
}
