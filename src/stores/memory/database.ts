import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { aggregateKey, type Row } from "../../core/event.ts";
import { laneOf } from "../../core/lane.ts";
import type { LetterRow } from "../../core/letter.ts";
import { createMutex } from "../../core/queue.ts";
import type { Wake } from "../../core/wake.ts";
import { enqueue, type AuditRecord, type StoredEvent, type Tables } from "./tables.ts";

/** An open transaction. Other transactions see its changes once it has committed, all at once. */
export interface MemoryTx {
  /** A table of the user's own. Replace its values, never change them in place. */
  table<Key, Value>(name: string): Map<Key, Value>;
}

/**
 * The handle of a memory store. Transactions run one after the other, as writers of a SQLite file do: a transaction that waits for another
 * one inside its callback deadlocks.
 */
export interface MemoryDb {
  /** Commits when `work` resolves, rolls back when it fails. */
  transaction<T>(work: (tx: MemoryTx) => T | Promise<T>): Promise<T>;
  /** The committed table. */
  table<Key, Value>(name: string): ReadonlyMap<Key, Value>;
  /** What operators did. */
  audit(): readonly AuditRecord[];
  /** What subscribers could not apply. */
  letters(): readonly LetterRow[];
}

/** What a transaction has done so far. */
interface Changes {
  open: boolean;
  readonly rows: { readonly row: Row; readonly createdAt: number }[];
  readonly ids: Set<string>;
  /** Idempotency key to event id. */
  readonly keys: Map<string, string>;
  readonly tables: Map<string, Map<unknown, unknown>>;
  /** Run at the commit: they write the inbox's marks. */
  readonly marks: (() => void)[];
}

export interface Database {
  readonly db: MemoryDb;
  /** Throws NO_TRANSACTION unless the handle is an open transaction of this store. */
  changesOf(tx: MemoryTx): Changes;
}

export function createDatabase(tables: Tables, clock: Clock, wake: Wake): Database {
  const mutex = createMutex();
  let entering = false;
  const known = new WeakMap<MemoryTx, Changes>();
  const own = new Map<string, Map<unknown, unknown>>();

  const changesOf = (tx: MemoryTx): Changes => {
    const changes = typeof tx === "object" && tx !== null ? known.get(tx) : undefined;
    if (changes === undefined)
      throw new WaybillError(
        "NO_TRANSACTION",
        "this handle is not a transaction of this memory store: use the one that transaction(…) passes to its callback",
      );
    if (!changes.open) throw new WaybillError("NO_TRANSACTION", "this transaction has ended: await everything before its callback returns");
    return changes;
  };

  const begin = (): { tx: MemoryTx; changes: Changes } => {
    const changes: Changes = { open: true, rows: [], ids: new Set(), keys: new Map(), tables: new Map(), marks: [] };
    const tx: MemoryTx = {
      table<Key, Value>(name: string) {
        const copies = changesOf(tx).tables;
        let copy = copies.get(name);
        if (copy === undefined) copies.set(name, (copy = new Map(own.get(name))));
        return copy as Map<Key, Value>;
      },
    };
    known.set(tx, changes);
    return { tx, changes };
  };

  const commit = (changes: Changes): void => {
    const now = clock.now();
    for (const [name, copy] of changes.tables) own.set(name, new Map(copy));
    for (const [key, id] of changes.keys) tables.keys.set(key, { id, usedAt: now });
    for (const { row, createdAt } of changes.rows) insert(tables, ++tables.lastSeq, row, createdAt);
    for (const mark of changes.marks) mark();
    if (changes.rows.length > 0) wake.notify();
  };

  const transaction = <T>(work: (tx: MemoryTx) => T | Promise<T>): Promise<T> => {
    if (entering) {
      // Only a call before the callback's first await can be recognized as nested.
      return Promise.reject(
        new WaybillError("ALREADY_IN_TRANSACTION", "a transaction of this memory store is open here already: use its handle"),
      );
    }
    return mutex.run(async () => {
      const { tx, changes } = begin();
      try {
        const result = await enter(() => work(tx));
        commit(changes);
        return result;
      } finally {
        changes.open = false;
      }
    });
  };

  const enter = <T>(work: () => T): T => {
    entering = true;
    try {
      return work();
    } finally {
      entering = false;
    }
  };

  return {
    changesOf,
    db: {
      transaction,
      table: <Key, Value>(name: string) => new Map(own.get(name)) as ReadonlyMap<Key, Value>,
      audit: () => [...tables.audit],
      letters: () => [...tables.letters.values()].map(({ row }) => row),
    },
  };
}

export function insert(tables: Tables, seq: bigint, row: Row, createdAt: number): void {
  const event: StoredEvent = {
    seq,
    row,
    aggregate: aggregateKey(row),
    lane: laneOf(row.aggregateType, row.aggregateId),
    createdAt,
    status: "PENDING",
    retryCount: 0,
    nextAttemptAt: null,
    failure: null,
    publishedAt: null,
    window: null,
    queued: false,
  };
  tables.events.set(event.seq, event);
  tables.byId.set(row.id, event);
  enqueue(tables, event);
}
