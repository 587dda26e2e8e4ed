import type { Begins } from "../../contracts/handle.ts";
import { WaybillError } from "../../core/errors.ts";
import { lend } from "../../core/lend.ts";
import type { Method } from "./method.ts";
import { raw } from "./raw.ts";
import { ended, handle, isMethod, noTransaction } from "./handle.ts";

/** An `EntityManager` of one of the SQL drivers: the one that `em.transactional(…)` gives, or that `em.begin()` was called on. */
export interface MikroOrmTransaction {
  isInTransaction(): boolean;
  getTransactionContext(): unknown;
  flush(): Promise<void>;
}

export interface MikroOrmDb extends MikroOrmTransaction {
  readonly transactional: Method;
}

interface MikroOrmBegins extends Begins {
  readonly tx: this["db"];
}

interface Begin {
  transactional<T>(work: (em: MikroOrmTransaction) => Promise<T>): Promise<T>;
}

/** The entity manager that `em.transactional(…)` of MikroORM gives to its callback. */
export const fromMikroOrm = handle<MikroOrmDb, MikroOrmTransaction, MikroOrmBegins>({
  name: "MikroORM",
  owns: ({ isInTransaction }) => isMethod(isInTransaction),
  open(em) {
    const trx = (em.isInTransaction() ? em.getTransactionContext() : undefined) as { isCompleted?(): boolean } | undefined;
    if (trx === undefined) throw noTransaction("an entity manager of MikroORM was given that is not in a transaction");
    if (typeof trx.isCompleted !== "function")
      throw new WaybillError("UNSUPPORTED", "fromMikroOrm works with the Knex transactions of MikroORM 6; this version has others");
    if (trx.isCompleted()) throw ended("MikroORM");
    const query = raw(trx);
    return async (sql, values) => {
      // An aggregate's row is locked when its changes are written, and its events must be numbered after that.
      await em.flush();
      return query(sql, values);
    };
  },
  isInside: (db) => db.isInTransaction(),
  lend: (tx) => lend(tx),
  begin: (db, work) => (db as unknown as Begin).transactional(work),
});
