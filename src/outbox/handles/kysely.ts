import type { Begins } from "../../contracts/handle.ts";
import { readSafely, WaybillError } from "../../core/errors.ts";
import { lend, lending } from "../../core/lend.ts";
import type { GivenBy, Method } from "./method.ts";
import { ended, handle, noTransaction } from "./handle.ts";
import { isKnown, refuseOld } from "./kysely-class.ts";
import type { Rows } from "./result.ts";

interface CompiledQuery {
  readonly sql: string;
  readonly parameters: readonly unknown[];
  readonly query: { readonly kind: "RawNode"; readonly sqlFragments: readonly string[]; readonly parameters: readonly never[] };
  readonly queryId: { readonly queryId: string };
}

/** A `Transaction`, a `ControlledTransaction` too. */
export interface KyselyTransaction {
  readonly isTransaction: true;
  executeQuery(query: CompiledQuery): Promise<{ readonly rows: readonly unknown[] }>;
}

export interface KyselyDb {
  readonly isTransaction: boolean;
  transaction(): { readonly execute: Method };
}

interface KyselyBegins extends Begins {
  readonly tx: this["db"] extends { transaction(): { readonly execute: infer M } } ? GivenBy<M> : never;
}

interface Begin {
  transaction(): { execute<T>(work: (tx: KyselyTransaction) => Promise<T>): Promise<T> };
}

/** The transaction that `db.transaction().execute(…)` or `db.startTransaction().execute()` gives. */
export const fromKysely = handle<KyselyDb, KyselyTransaction, KyselyBegins>({
  name: "Kysely",
  owns: ({ isTransaction }) => typeof isTransaction === "boolean",
  open(tx) {
    if (!tx.isTransaction) throw noTransaction("a Kysely instance was given in place of its transaction");
    return async (sql, parameters) => {
      if (!isKnown(tx)) await refuseOld(tx);
      const query = { kind: "RawNode", sqlFragments: [sql], parameters: [] } as const;
      try {
        const { rows } = await tx.executeQuery({ sql, parameters, query, queryId: { queryId: "waybill" } });
        return { rows: rows as Rows };
      } catch (error) {
        // Kysely does not expose the state of a transaction, except in these error messages.
        if (error instanceof Error && /^Transaction is already (committed|rolled back)$/.test(error.message)) throw ended("Kysely");
        throw error;
      }
    };
  },
  isInside: (db) => db.isTransaction,
  lend: (tx) => lend(tx),
  async begin(db, work) {
    await refuseOld(db);
    try {
      return await (db as Begin).transaction().execute((tx) => lending(tx, work));
    } catch (error) {
      throw isAborted(error) ? lost(error) : error;
    }
  },
});

/** From 0.29 on, Kysely says by such an error that the server answered its COMMIT with ROLLBACK. */
const isAborted = (error: unknown): boolean =>
  readSafely(() => (error as Readonly<Record<symbol, unknown>>)[Symbol.for("kysely.AbortedTransactionError")] === true, false);

const lost = (cause: unknown): WaybillError =>
  new WaybillError(
    "TRANSACTION_LOST",
    "a statement of the transaction had failed, and the database rolled everything back: await every statement, and let its error pass",
    { cause },
  );
