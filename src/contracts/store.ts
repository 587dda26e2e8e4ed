import type { Wake } from "../core/wake.ts";
import type { Consumers } from "./consumers.ts";
import type { Examination } from "./doctor.ts";
import type { Housekeeping } from "./housekeeping.ts";
import type { Tail } from "./tail-ledger.ts";
import type { Inbox } from "./inbox.ts";
import type { Letters } from "./letters.ts";
import type { LeaseStore } from "./lease-store.ts";
import type { Operator } from "./operator.ts";
import type { OutboxStore, OutboxWriter, Transactor } from "./outbox-store.ts";

export interface Schema {
  /** Creates or upgrades the tables, and answers the versions that it applied. It is safe to repeat, and to run beside traffic. */
  migrate(): Promise<readonly number[]>;
  /** The statements that `migrate` would run on an empty database, for a migration tool: they neither begin nor commit. */
  print(): string;
  /** The statements that give each role the least it needs; empty where the database has no roles. */
  grants(): string;
  /** Rejects with NOT_MIGRATED, SCHEMA_NEWER or SCHEMA_UNRELEASED when this code cannot work with the tables in the database. */
  check(): Promise<void>;
}

/** A database as every part of the path uses it. `Db` begins transactions, and `Tx` is one. */
export interface Store<Db, Tx = Db> extends AsyncDisposable, Partial<Examination> {
  readonly name: string;
  readonly schema: Schema;
  readonly writer: OutboxWriter<Tx>;
  readonly transactor: Transactor<Db, Tx>;
  readonly outbox: OutboxStore;
  readonly leases: LeaseStore;
  readonly inbox: Inbox<Tx>;
  readonly letters: Letters;
  readonly consumers: Consumers;
  readonly operator: Operator;
  readonly housekeeping?: Housekeeping;
  /** Where the store can read its database's log. */
  readonly tail?: Tail;
  readonly wake: Wake;
}
