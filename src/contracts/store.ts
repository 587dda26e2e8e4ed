import type { Wake } from "../core/wake.ts";
import type { Examination } from "./examination.ts";
import type { Housekeeping } from "./housekeeping.ts";
import type { Inbox } from "./inbox.ts";
import type { LeaseStore } from "./lease-store.ts";
import type { Operator } from "./operator.ts";
import type { OutboxStore, OutboxWriter, Transactor } from "./outbox-store.ts";

export interface Schema {
  /** Creates or upgrades the tables; says which versions were applied. Safe to repeat and to run beside traffic. */
  migrate(): Promise<readonly number[]>;
  /** The statements `migrate` would run on an empty database. */
  print(): string;
  /** Rejects with NOT_MIGRATED or SCHEMA_NEWER unless this code can work with the tables that are there. */
  check(): Promise<void>;
}

/** A database as every part of the path meets it. `Db` begins transactions, `Tx` is one. */
export interface Store<Db, Tx = Db> extends AsyncDisposable, Partial<Examination> {
  readonly name: string;
  readonly schema: Schema;
  readonly writer: OutboxWriter<Tx>;
  readonly transactor: Transactor<Db, Tx>;
  readonly outbox: OutboxStore;
  readonly leases: LeaseStore;
  readonly inbox: Inbox<Tx>;
  readonly operator: Operator;
  readonly housekeeping?: Housekeeping;
  readonly wake: Wake;
}
