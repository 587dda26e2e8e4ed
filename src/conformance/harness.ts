import type { Store } from "../contracts/store.ts";
import type { LetterRow } from "../core/letter.ts";

/** The runner's own function; vitest, node:test and mocha all have this shape. */
export interface Test {
  (name: string, body: () => Promise<void>): unknown;
  /** Shows the cases of what an adapter cannot do. Without it they are left out. */
  skip?(name: string, body: () => Promise<void>): unknown;
}

/** The clock that the store judges time by. Where it cannot be set, `advance` makes everything that is stored older. */
export interface SuiteClock {
  now(): number;
  advance(ms: number): void | Promise<void>;
}

export interface OpenTransaction<Tx> {
  readonly tx: Tx;
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

export interface AuditLine {
  readonly who: string;
  readonly action: string;
  readonly events: number;
}

/** A fresh and migrated store, and what a user of it would have beside it. */
export interface StoreHarness<Db, Tx> {
  readonly store: Store<Db, Tx>;
  /** Begins transactions, and has none open. */
  readonly db: Db;
  readonly clock: SuiteClock;
  /** Begins a transaction as users of this store do, and leaves it open. */
  begin(): Promise<OpenTransaction<Tx>>;
  /** Writes into a table of the user's own. */
  effect(tx: Tx, name: string): void | Promise<void>;
  /** The committed effects, each as often as it happened. */
  effects(): Promise<readonly string[]>;
  /** Ends the transaction under its user, as servers do on some failures. */
  lose?(tx: Tx): void | Promise<void>;
  /** Commits the handler's transaction under it, as some statements do. What the handler does afterwards stands alone. */
  commitInside?(tx: Tx): void | Promise<void>;
  /** What operators did, oldest first. */
  audit(): Promise<readonly AuditLine[]>;
  /** The letters that the inbox keeps, oldest first. */
  letters(): Promise<readonly LetterRow[]>;
  /**
   * Writes rows by plain SQL that the store cannot carry, past the table's constraints: each of an aggregate of its own, and
   * one of each kind that this database can hold.
   */
  hostile?(): Promise<readonly HostileRow[]>;
  close(): Promise<void>;
}

export interface HostileRow {
  readonly about: string;
  readonly seq: bigint;
  /** It can be carried after all, and is in the way of something else, such as settling. @default false */
  readonly readable?: boolean;
}

/** What differs between stores. Cases that need what is `false` here are skipped. */
export interface StoreCan {
  /** The relay works while a user's transaction is open. */
  readonly claimBesideWriter: boolean;
  /** Several users' transactions may be open at once. */
  readonly parallelWriters: boolean;
  /** A transaction can end under its user: the harness has `lose`. */
  readonly loseTransaction: boolean;
  /** A handler's statement can commit its transaction: the harness has `commitInside`. */
  readonly commitInside: boolean;
  /** An id that exists already is refused. */
  readonly uniqueIds: boolean;
  /** Plain SQL can write what cannot be carried: the harness has `hostile`. */
  readonly hostileRows: boolean;
}

export interface StoreSuite<Db, Tx> {
  readonly test: Test;
  readonly can: StoreCan;
  create(): Promise<StoreHarness<Db, Tx>>;
}
