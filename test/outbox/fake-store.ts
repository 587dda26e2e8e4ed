import type { OutboxWriter, Transactor } from "../../src/contracts/outbox-store.ts";
import { turn } from "../../src/core/clock.ts";
import { WaybillError } from "../../src/core/errors.ts";
import type { Added, Row } from "../../src/core/event.ts";
import type { Wake } from "../../src/core/wake.ts";

export interface FakeTx {
  open: boolean;
  readonly rows: Row[];
}

export interface FakeDb {
  readonly name: string;
}

/** Just enough of a store to see what is inserted, when, and whether it was kept. */
export function fakeStore(options: { readonly synchronous: boolean; readonly failAppend?: Error; readonly failCommit?: Error }) {
  const committed: Row[] = [];
  const log: string[] = [];

  const begin = (): FakeTx => {
    log.push("begin");
    return { open: true, rows: [] };
  };
  const commit = (tx: FakeTx): void => {
    tx.open = false;
    if (options.failCommit !== undefined) throw options.failCommit;
    log.push("commit");
    committed.push(...tx.rows);
  };
  const rollback = (tx: FakeTx): void => {
    tx.open = false;
    log.push("rollback");
  };

  const insert = (tx: FakeTx, rows: readonly Row[]): readonly Added[] => {
    if (!tx.open) throw new WaybillError("NO_TRANSACTION", "there is no transaction");
    if (options.failAppend !== undefined) throw options.failAppend;
    log.push(`append ${rows.map((row) => row.aggregateId).join(" ")}`);
    const used = [...committed, ...tx.rows];
    return rows.map((row) => {
      const first = used.find((other) => other.idempotencyKey !== null && other.idempotencyKey === row.idempotencyKey);
      if (first !== undefined) return { id: first.id, duplicate: true };
      tx.rows.push(row);
      used.push(row);
      return { id: row.id, duplicate: false };
    });
  };
  const writer: OutboxWriter<FakeTx> = {
    synchronous: options.synchronous,
    append(tx, rows) {
      if (options.synchronous) return Promise.resolve(insert(tx, rows));
      return turn().then(() => insert(tx, rows));
    },
  };

  /** As better-sqlite3 has it: the callback's promises are nobody's. */
  const synchronously = <T>(work: (tx: FakeTx) => T): T => {
    const tx = begin();
    try {
      const result = work(tx);
      commit(tx);
      return result;
    } catch (error) {
      rollback(tx);
      throw error;
    }
  };
  const asynchronously = async <T>(work: (tx: FakeTx) => T | Promise<T>): Promise<T> => {
    const tx = begin();
    try {
      const result = await work(tx);
      commit(tx);
      return result;
    } catch (error) {
      rollback(tx);
      throw error;
    }
  };
  const transactor: Transactor<FakeDb, FakeTx> = {
    async transaction(_db, work) {
      const tx = begin();
      try {
        let result = work(tx);
        if (result instanceof Promise) result = await result;
        commit(tx);
        return result;
      } catch (error) {
        rollback(tx);
        throw error;
      }
    },
  };
  const wake: Wake = { notify: () => void log.push("wake"), wait: () => Promise.resolve(false) };

  return { store: { writer, transactor, wake }, db: { name: "db" } satisfies FakeDb, committed, log, synchronously, asynchronously };
}
