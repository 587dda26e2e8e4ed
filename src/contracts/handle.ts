import type { Added, Row } from "../core/event.ts";
import type { Loan } from "../core/lend.ts";

/** What a store needs of an open transaction, whatever library it belongs to. */
export interface SqlTransaction {
  /** Placeholders are the database's own: `$1`, `$2` … on PostgreSQL, `?` elsewhere. Fails with the client's own error. */
  query(sql: string, values: unknown[]): Promise<{ readonly rows: readonly Readonly<Record<string, unknown>>[] }>;
}

/** How a library's transaction runs a statement, and how the library begins one. */
export interface Handle<Db, Tx, B extends Begins = { readonly db: Db; readonly tx: Tx }> {
  /** Throws NO_TRANSACTION where the library can tell that there is none, or that it has ended. */
  (tx: Tx): SqlTransaction;
  /**
   * Begins a transaction as the library does. It commits when `work` resolves, and rolls back when it fails. After that, `work` can no
   * longer use what it was given: a late statement would run in another caller's transaction. Those of
   * waybill/handles take it back sooner where they can, before Waybill's own last statements.
   */
  begin<T>(db: Db, work: (tx: Tx) => Promise<T>): Promise<T>;
  /** The same transaction, for one of several handlers. Absent where a library's own object cannot be lent. */
  lend?(tx: Tx): Loan<Tx>;
  /** Only for the types. No object has it. */
  readonly begins?: B;
}

/** The writer of a store that takes transactions of other libraries as well as those of its own client. */
export interface SqlWriter {
  append(tx: SqlTransaction, rows: readonly Row[]): Promise<readonly Added[]>;
}

/** PostgreSQL answers the COMMIT of a failed transaction with no error, and libraries then report a commit. */
export interface ProvingWriter extends SqlWriter {
  /**
   * Runs as the last statement. What it returns runs after the commit, and fails with TRANSACTION_LOST or COMMIT_UNKNOWN unless the database
   * kept the transaction.
   */
  prove(tx: SqlTransaction): Promise<() => Promise<void>>;
}

/** MySQL continues in autocommit mode after it rolls a transaction back: later statements commit one by one. PostgreSQL refuses them. */
export interface StayingWriter extends SqlWriter {
  /** Runs `work`, and fails with TRANSACTION_LOST if another transaction, or none, is open afterwards. */
  staying<T>(tx: SqlTransaction, work: () => T | Promise<T>): Promise<T>;
}

/** What a store takes to work in the transactions of a library. */
export interface Library<Db, Tx, Of extends Db, B extends Begins> {
  /** A handle of waybill/handles: fromDrizzle, fromKysely, … Every transaction that you pass or receive is then the library's own. */
  readonly tx: Handle<Db, Tx, B>;
  /** What the library begins transactions on. Handlers of a subscriber run in these transactions. */
  readonly db: Of;
}

/** Which transaction a library begins on a `db`. An interface that extends this one derives `tx` from `this["db"]`. */
export interface Begins {
  readonly db: unknown;
  readonly tx: unknown;
}

/** The library's own type of a transaction on this `Db`. Handlers and callbacks receive it. */
export type TxOf<B extends Begins, Db> = (B & { readonly db: Db })["tx"];
