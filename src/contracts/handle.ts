import type { Added, Row } from "../core/event.ts";

/** What a store needs of an open transaction, whichever library holds it. */
export interface SqlTransaction {
  /** Placeholders are the database's own: `$1`, `$2` … on PostgreSQL, `?` elsewhere. Fails with the client's own error. */
  query(sql: string, values: unknown[]): Promise<{ readonly rows: readonly Readonly<Record<string, unknown>>[] }>;
}

/** How a library's transaction runs a statement, and how the library begins one. */
export interface Handle<Db, Tx, B extends Begins = { readonly db: Db; readonly tx: Tx }> {
  /** Throws NO_TRANSACTION where the library can tell that there is none, or that it has ended. */
  (tx: Tx): SqlTransaction;
  /**
   * The library's own way: commits when `work` resolves, rolls back when it fails. What `work` was given cannot be used
   * any more after that: a late statement would fall into somebody else's transaction.
   */
  begin<T>(db: Db, work: (tx: Tx) => Promise<T>): Promise<T>;
  /** For types alone, and never there. */
  readonly begins?: B;
}

/** The writer of a store that takes the transactions of libraries, beside those of its own client. */
export interface SqlWriter {
  append(tx: SqlTransaction, rows: readonly Row[]): Promise<readonly Added[]>;
}

/** That of a database which goes on outside when it has given a transaction up. Others refuse every statement from there on. */
export interface StayingWriter extends SqlWriter {
  /** Runs `work`, and fails with TRANSACTION_LOST if the transaction is not the same one afterwards. */
  staying<T>(tx: SqlTransaction, work: () => T | Promise<T>): Promise<T>;
}

/** What a store takes to work in the transactions of a library. */
export interface Library<Db, Tx, Of extends Db, B extends Begins> {
  /** The library's handle, one of waybill/handles: fromDrizzle, fromKysely, … Everything that takes or gives a transaction takes and gives the library's. */
  readonly tx: Handle<Db, Tx, B>;
  /** What the library begins transactions on: handlers of a subscriber work in these. */
  readonly db: Of;
}

/** Which transaction a library begins on a `db`: an interface that extends this one tells `tx` by `this["db"]`. */
export interface Begins {
  readonly db: unknown;
  readonly tx: unknown;
}

/** The library's own type of a transaction on this `Db`, which handlers and callbacks are given. */
export type TxOf<B extends Begins, Db> = (B & { readonly db: Db })["tx"];
