import type { Begins } from "../../contracts/handle.ts";
import { WaybillError } from "../../core/errors.ts";
import { lend, lending } from "../../core/lend.ts";
import type { Method } from "./method.ts";
import { type Begin, ended, handle, isMethod, noTransaction } from "./handle.ts";
import { unwrapped, type Rows } from "./result.ts";

/** An `EntityManager` inside a transaction: what `dataSource.transaction(…)` gives, or `queryRunner.manager`. */
export interface TypeormTransaction {
  readonly queryRunner?: TypeormQueryRunner;
}

interface TypeormQueryRunner {
  readonly isTransactionActive: boolean;
  readonly isReleased: boolean;
}

/** A `DataSource`, or its manager. */
export interface TypeormDb {
  readonly queryRunner?: TypeormQueryRunner;
  readonly transaction: Method;
}

interface TypeormBegins extends Begins {
  readonly tx: this["db"] extends { readonly manager: infer Manager } ? Manager : this["db"];
}

/** With the last argument, TypeORM gives the rows of every kind of statement in the same place. */
interface Inside {
  query(sql: string, values: readonly unknown[], structured: true): Promise<{ readonly records?: Rows }>;
}

/** The entity manager that `dataSource.transaction(…)` of TypeORM gives to its callback. */
export const fromTypeorm = handle<TypeormDb, TypeormTransaction, TypeormBegins>({
  name: "TypeORM",
  owns: ({ getRepository }) => isMethod(getRepository),
  open({ queryRunner }) {
    if (queryRunner === undefined) throw noTransaction("an entity manager of TypeORM was given that is not in a transaction");
    if (!queryRunner.isTransactionActive || queryRunner.isReleased) throw ended("TypeORM");
    return async (sql, values) => {
      const { records = [] } = await unwrapped((queryRunner as unknown as Inside).query(sql, values, true));
      return { rows: records };
    };
  },
  isInside: (db) => db.queryRunner?.isTransactionActive === true,
  lend: (tx) => lend(tx),
  begin: (db, work) =>
    (db as Begin<TypeormTransaction>).transaction(async (manager) => {
      const runner = manager.queryRunner as unknown as Runner;
      // On SQLite, all managers share one query runner, which is never released.
      if (runner.driver.createQueryRunner("master") === runner) return lending(manager, work);
      try {
        const result = await lending(manager, work);
        // TypeORM would release a savepoint in place of COMMIT, and leave the transaction open.
        if (runner.transactionDepth > 1)
          throw new WaybillError(
            "TRANSACTION_LOST",
            "a nested transaction was still open at the end: await it inside the callback or handler",
          );
        return result;
      } catch (error) {
        await giveUp(runner);
        throw error;
      }
    }),
});

interface Runner {
  readonly driver: { createQueryRunner(mode: "master"): unknown };
  readonly transactionDepth: number;
  query(sql: string): Promise<unknown>;
}

/**
 * While a nested transaction is open, TypeORM would only roll back to its savepoint. Whoever had the session next would commit the rest. All
 * that TypeORM runs goes through this method, so what comes later, the nested COMMIT too, is refused.
 */
async function giveUp(runner: Runner): Promise<void> {
  const rolledBack = runner.query("ROLLBACK");
  runner.query = () => Promise.reject(ended("TypeORM"));
  await rolledBack.catch(() => undefined);
}
