import type { Store } from "../contracts/store.ts";
import type { LetterRow } from "../core/letter.ts";

/** The runner's own function; vitest, node:test and mocha all have this shape. */
export interface Test {
  (name: string, body: () => Promise<void>): unknown;
  /** Registers the cases that an adapter cannot run, as skipped. Without it they are left out. */
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
  /** Ends the user's transaction from outside, as servers do on some failures. */
  lose?(tx: Tx): void | Promise<void>;
  /** Commits the handler's transaction while the handler runs, as some statements do. Its later statements stand alone. */
  commitInside?(tx: Tx): void | Promise<void>;
  /** What operators did, oldest first. */
  audit(): Promise<readonly AuditLine[]>;
  /** The letters that the inbox keeps, oldest first. */
  letters(): Promise<readonly LetterRow[]>;
  /**
   * Writes rows with plain SQL that the store cannot publish, past the table's constraints: one of each kind that this database can hold,
   * each with an aggregate of its own.
   */
  hostile?(): Promise<readonly HostileRow[]>;
  close(): Promise<void>;
}

export interface HostileRow {
  readonly about: string;
  readonly seq: bigint;
  /** It can be published after all, and hinders something else, such as settling. @default false */
  readonly readable?: boolean;
}

/** What differs between stores. Cases that need a capability that is `false` here are skipped. */
export interface StoreCan {
  /** The relay works while a user's transaction is open. */
  readonly claimBesideWriter: boolean;
  /** Several users' transactions may be open at once. */
  readonly parallelWriters: boolean;
  /** A server can end a user's transaction, and keeps nothing of what comes behind its end: the harness has `lose`. */
  readonly loseTransaction: boolean;
  /** A handler's statement can commit its transaction: the harness has `commitInside`. */
  readonly commitInside: boolean;
  /** An id that exists already is refused. */
  readonly uniqueIds: boolean;
  /** Plain SQL can write rows that cannot be published: the harness has `hostile`. */
  readonly hostileRows: boolean;
}

export interface StoreSuite<Db, Tx> {
  readonly test: Test;
  readonly can: StoreCan;
  create(): Promise<StoreHarness<Db, Tx>>;
}
