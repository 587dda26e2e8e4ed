import type { Begins, Handle } from "../../contracts/handle.ts";
import type { GivenBy, Method } from "./method.ts";
import { raw } from "./raw.ts";
import { alreadyInside, ended, noTransaction } from "./refuse.ts";

export interface KnexTransaction {
  isCompleted(): boolean;
}

export interface KnexDb {
  readonly transaction: Method;
}

interface KnexBegins extends Begins {
  readonly tx: this["db"] extends { readonly transaction: infer M } ? GivenBy<M> : never;
}

interface Begin {
  transaction<T>(work: (trx: KnexTransaction) => Promise<T>): Promise<T>;
}

/** The transaction that `knex.transaction(…)` gives. */
export const fromKnex: Handle<KnexDb, KnexTransaction, KnexBegins> = Object.assign(
  (trx: KnexTransaction) => {
    if (typeof trx.isCompleted !== "function") throw noTransaction("a Knex instance was given in place of its transaction");
    if (trx.isCompleted()) throw ended("Knex");
    return raw(trx);
  },
  {
    async begin<T>(db: KnexDb, work: (trx: KnexTransaction) => Promise<T>): Promise<T> {
      if ("isCompleted" in db) throw alreadyInside("Knex");
      return (db as Begin).transaction(work);
    },
  },
);
