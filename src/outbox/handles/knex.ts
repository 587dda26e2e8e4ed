import type { Begins } from "../../contracts/handle.ts";
import { lend } from "../../core/lend.ts";
import type { GivenBy, Method } from "./method.ts";
import { raw } from "./raw.ts";
import { type Begin, ended, handle, isMethod, noTransaction } from "./handle.ts";

export interface KnexTransaction {
  isCompleted(): boolean;
}

export interface KnexDb {
  readonly transaction: Method;
}

interface KnexBegins extends Begins {
  readonly tx: this["db"] extends { readonly transaction: infer M } ? GivenBy<M> : never;
}

/** The transaction that `knex.transaction(…)` gives. */
export const fromKnex = handle<KnexDb, KnexTransaction, KnexBegins>({
  name: "Knex",
  owns: ({ raw: statement }) => isMethod(statement),
  open(trx) {
    if (typeof trx.isCompleted !== "function") throw noTransaction("a Knex instance was given in place of its transaction");
    if (trx.isCompleted()) throw ended("Knex");
    return raw(trx);
  },
  isInside: (db) => "isCompleted" in db,
  lend: (tx) => lend(tx),
  begin: (db, work) => (db as Begin<KnexTransaction>).transaction(work),
});
