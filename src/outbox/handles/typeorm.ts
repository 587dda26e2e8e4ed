import type { Begins, Handle } from "../../contracts/handle.ts";
import { lending } from "../../core/lend.ts";
import type { Method } from "./method.ts";
import { alreadyInside, ended, noTransaction } from "./refuse.ts";
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

interface Begin {
  transaction<T>(work: (manager: TypeormTransaction) => Promise<T>): Promise<T>;
}

/** The entity manager that `dataSource.transaction(…)` of TypeORM gives to its callback. */
export const fromTypeorm: Handle<TypeormDb, TypeormTransaction, TypeormBegins> = Object.assign(
  ({ queryRunner }: TypeormTransaction) => {
    if (queryRunner === undefined) throw noTransaction("an entity manager of TypeORM was given that is not in a transaction");
    if (!queryRunner.isTransactionActive || queryRunner.isReleased) throw ended("TypeORM");
    return {
      async query(sql: string, values: unknown[]) {
        const { records = [] } = await unwrapped((queryRunner as unknown as Inside).query(sql, values, true));
        return { rows: records };
      },
    };
  },
  {
    async begin<T>(db: TypeormDb, work: (tx: TypeormTransaction) => Promise<T>): Promise<T> {
      if (db.queryRunner?.isTransactionActive === true) throw alreadyInside("TypeORM");
      // On SQLite, all managers share one query runner, which is never released.
      return (db as Begin).transaction((manager) => lending(manager, work));
    },
  },
);
