import type { Begins, Handle, ProvingWriter, SqlWriter, StayingWriter } from "../contracts/handle.ts";
import type { OutboxWriter, Transactor } from "../contracts/outbox-store.ts";
import { committed } from "../core/commit.ts";
import type { Added, Row } from "../core/event.ts";
import { unlent } from "../core/lend.ts";

/** How an outbox reaches its store: with the store's own client, or with a library's handle. `Given` is what `add` takes. */
export interface Way<Db, Tx, Given> {
  /** True where `append` has done all its work when it returns. */
  readonly synchronous: boolean;
  append(tx: Given, rows: readonly Row[]): Promise<readonly Added[]>;
  /** Calls `then` when the transaction has ended. False where the end is not reported. */
  onEnd(tx: Given, then: () => void): boolean;
  transaction<T>(db: Db, work: (tx: Tx) => T | Promise<T>): Promise<T>;
  /** The last statement of the work in a transaction; null when there is nothing to do. */
  last(tx: Tx, rows: readonly Row[]): Promise<unknown> | null;
}

export function ownWay<Db, Tx, Given>(
  writer: OutboxWriter<Tx>,
  transactor: Transactor<Db, Tx>,
  unwrap: ((given: Given) => Tx) | undefined,
): Way<Db, Tx, Given> {
  const own = (given: Given): Tx => (unwrap === undefined ? (given as unknown as Tx) : unwrap(given));
  return {
    synchronous: writer.synchronous,
    append: (given, rows) => writer.append(own(given), rows),
    onEnd: (given, then) => writer.onEnd?.(own(given), then) ?? false,
    transaction: (db, work) => transactor.transaction(db, work),
    last: (tx, rows) => (rows.length === 0 ? null : writer.append(tx, rows)),
  };
}

export function libraryWay<Db, Tx, B extends Begins>(
  writer: SqlWriter | StayingWriter | ProvingWriter,
  handle: Handle<Db, Tx, B>,
): Way<Db, Tx, Tx> {
  const append = (tx: Tx, rows: readonly Row[]): Promise<readonly Added[]> => writer.append(handle(tx), rows);
  const guard = "staying" in writer ? writer : null;
  const proving = "prove" in writer ? writer : null;
  return {
    synchronous: false,
    append,
    onEnd: () => false,
    transaction: (db, work) =>
      committed(
        (inner) => handle.begin(db, inner),
        (tx: Tx) => (guard === null ? work(tx) : guard.staying(handle(unlent(tx)), () => work(tx))),
        proving === null ? undefined : (tx) => proving.prove(handle(unlent(tx))),
      ),
    last(tx, rows) {
      if (rows.length > 0) return append(tx, rows);
      // Without an event, the server is asked too: one that has given the transaction up would "commit" nothing, and report no error.
      return guard === null && proving === null ? handle(tx).query("SELECT 1", []) : null;
    },
  };
}

export function isHandle<Db, Tx, B extends Begins>(tx: unknown): tx is Handle<Db, Tx, B> {
  return typeof tx === "function" && "begin" in tx;
}
