import type { Begins } from "../../contracts/handle.ts";
import { lending } from "../../core/lend.ts";
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
  // On SQLite, all managers share one query runner, which is never released.
  begin: (db, work) => (db as Begin<TypeormTransaction>).transaction((manager) => lending(manager, work)),
});
