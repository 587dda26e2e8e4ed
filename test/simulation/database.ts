import type { Added, Row } from "../../src/core/event.ts";
import type { Clock } from "../../src/core/clock.ts";
import { WaybillError } from "../../src/core/errors.ts";
import { insert } from "../../src/stores/memory/database.ts";
import type { SeatRow } from "../../src/stores/memory/inbox.ts";
import { createTables, type Tables } from "../../src/stores/memory/tables.ts";

/** Everything that a database keeps, as data: a replica is a copy of it. */
export interface Image {
  readonly tables: Tables;
  readonly marks: Map<string, { readonly handledAt: number; readonly handlerVersion: number; readonly finished: boolean }>;
  readonly failures: Map<string, { readonly count: number; readonly failedAt: number }>;
  readonly seats: Map<string, SeatRow>;
  /** The user's own: a counter for each aggregate, rows, and a log. */
  readonly counters: Map<string, number>;
  readonly written: Map<string, unknown>;
  readonly effects: unknown[];
}

/** A transaction as the server has it. */
export interface ServerTx {
  open: boolean;
  /** The handler itself has rolled it back: its session is still there. */
  givenUp?: boolean;
  readonly rows: { readonly seq: bigint; readonly row: Row; readonly createdAt: number }[];
  readonly keys: Map<string, string>;
  counters: Map<string, number>;
  readonly written: (readonly [string, unknown])[];
  readonly effects: unknown[];
  /** Finished when its work has come to its end: a handler may commit before that. */
  readonly marks: { readonly name: string; readonly handlerVersion: number; finished: boolean }[];
  /** The letter that its work applies. */
  letter: bigint | null;
  readonly locks: Set<string>;
}

export interface Savepoint {
  readonly rows: number;
  readonly written: number;
  readonly counters: Map<string, number>;
}

interface Lock {
  holder: ServerTx | null;
  readonly queue: { readonly tx: ServerTx; readonly enter: () => void; readonly fail: (error: Error) => void }[];
}

/**
 * A database whose transactions overlap: rows get their seq when they are inserted and are seen when their transaction
 * commits, so that seq order is not commit order. Counters are locked until the end, as rows are. With `oneWriter`,
 * transactions go one after the other, and whatever else writes waits for them, as with a SQLite file.
 */
export function createDatabase(clock: Clock, oneWriter: boolean) {
  let image: Image = {
    tables: createTables(),
    marks: new Map(),
    failures: new Map(),
    seats: new Map(),
    counters: new Map(),
    written: new Map(),
    effects: [],
  };
  const open = new Set<ServerTx>();
  const locks = new Map<string, Lock>();

  const lock = (tx: ServerTx, name: string): void | Promise<void> => {
    alive(tx);
    const found = locks.get(name) ?? { holder: null, queue: [] };
    locks.set(name, found);
    if (found.holder === tx) return;
    if (found.holder === null) {
      found.holder = tx;
      tx.locks.add(name);
      return;
    }
    return new Promise((resolve, reject) => found.queue.push({ tx, enter: resolve, fail: reject }));
  };
  const release = (tx: ServerTx): void => {
    for (const name of tx.locks) {
      const found = locks.get(name)!;
      found.holder = null;
      let next = found.queue.shift();
      while (next !== undefined && !next.tx.open) {
        next.fail(gone());
        next = found.queue.shift();
      }
      if (next === undefined) locks.delete(name);
      else {
        found.holder = next.tx;
        next.tx.locks.add(name);
        next.enter();
      }
    }
    tx.locks.clear();
  };
  const begin = async (): Promise<ServerTx> => {
    const tx: ServerTx = {
      open: true,
      rows: [],
      keys: new Map(),
      counters: new Map(),
      written: [],
      effects: [],
      marks: [],
      letter: null,
      locks: new Set(),
    };
    open.add(tx);
    if (oneWriter) await lock(tx, "file");
    return tx;
  };
  const end = (tx: ServerTx): void => {
    tx.open = false;
    open.delete(tx);
    release(tx);
  };

  return {
    get image() {
      return image;
    },
    begin,
    lock,
    rollback(tx: ServerTx) {
      if (tx.open) end(tx);
    },
    commit(tx: ServerTx) {
      alive(tx);
      const now = clock.now();
      const { tables } = image;
      for (const [key, value] of tx.counters) image.counters.set(key, value);
      for (const [id, row] of tx.written) image.written.set(id, row);
      image.effects.push(...tx.effects);
      for (const [key, id] of tx.keys) tables.keys.set(key, { id, usedAt: now });
      for (const { seq, row, createdAt } of tx.rows) insert(tables, seq, row, createdAt);
      for (const { name, handlerVersion, finished } of tx.marks) {
        image.marks.set(name, { handledAt: now, handlerVersion, finished });
        if (finished) image.failures.delete(name);
        if (finished && tx.letter !== null) tables.letters.delete(tx.letter);
      }
      end(tx);
    },
    /** Moves the counter, and says where it stands; its row stays locked. */
    async count(tx: ServerTx, aggregate: string, by: number): Promise<number> {
      await lock(tx, `counter ${aggregate}`);
      alive(tx);
      const next = (tx.counters.get(aggregate) ?? image.counters.get(aggregate) ?? 0) + by;
      tx.counters.set(aggregate, next);
      return next;
    },
    async append(tx: ServerTx, rows: readonly Row[]): Promise<readonly Added[]> {
      alive(tx);
      // Another's key, or id, is decided when that transaction ends.
      for (const { idempotencyKey } of rows) if (idempotencyKey !== null) await lock(tx, `key ${idempotencyKey}`);
      alive(tx);
      return append(image.tables, tx, rows, clock.now());
    },
    savepoint: (tx: ServerTx): Savepoint => ({ rows: tx.rows.length, written: tx.written.length, counters: new Map(tx.counters) }),
    rollbackTo(tx: ServerTx, { rows, written, counters }: Savepoint) {
      alive(tx);
      tx.rows.length = rows;
      tx.written.length = written;
      tx.counters = counters;
    },
    /** A statement of its own. */
    async alone<T>(work: () => T | Promise<T>): Promise<T> {
      if (!oneWriter) return work();
      const tx = await begin();
      try {
        return await work();
      } finally {
        end(tx);
      }
    },
    /** Statements of one transaction that has these lanes to itself: whoever else acts on them waits. */
    async onLanes<T>(lanes: Iterable<number>, work: (alive: () => void) => T | Promise<T>): Promise<T> {
      const tx = await begin();
      try {
        for (const lane of [...lanes].sort((a, b) => a - b)) await lock(tx, `lane ${lane}`);
        alive(tx);
        return await work(() => alive(tx));
      } finally {
        if (tx.open) end(tx);
      }
    },
    openTransactions: () => open.size,
    /** The server ends, and everything that was not committed with it. */
    restart() {
      for (const tx of [...open]) end(tx);
    },
    copy: (): Image => structuredClone(image),
    /** A replica takes over, with what it has. */
    failOver(replica: Image) {
      for (const tx of [...open]) end(tx);
      // On a real database, a window's id is made by its relay and never comes twice.
      replica.tables.lastWindow = Math.max(replica.tables.lastWindow, image.tables.lastWindow);
      image = replica;
    },
  };
}

export type Database = ReturnType<typeof createDatabase>;

const gone = (): WaybillError => new WaybillError("STORE_UNAVAILABLE", "the server ended this session");

function alive(tx: ServerTx): void {
  if (!tx.open) throw gone();
}

function append(tables: Tables, tx: ServerTx, rows: readonly Row[], createdAt: number): readonly Added[] {
  const keys = new Map<string, string>();
  const fresh = new Map<string, Row>();
  const added: Added[] = [];
  for (const row of rows) {
    const key = row.idempotencyKey;
    const first = key === null ? undefined : (tables.keys.get(key)?.id ?? tx.keys.get(key) ?? keys.get(key));
    if (first !== undefined) {
      added.push({ id: first, duplicate: true });
      continue;
    }
    if (tables.byId.has(row.id) || fresh.has(row.id) || tx.rows.some((other) => other.row.id === row.id))
      throw new WaybillError("INVALID_DRAFT", `an event with the id ${row.id} exists already`);
    if (key !== null) keys.set(key, row.id);
    const payload = typeof row.payload === "string" ? row.payload : Uint8Array.from(row.payload);
    fresh.set(row.id, { ...row, payload, headers: { ...row.headers } });
    added.push({ id: row.id, duplicate: false });
  }
  for (const row of fresh.values()) tx.rows.push({ seq: ++tables.lastSeq, row, createdAt });
  for (const [key, id] of keys) tx.keys.set(key, id);
  return added;
}
