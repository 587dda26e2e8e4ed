import type { Begins } from "../../contracts/handle.ts";
import { WaybillError } from "../../core/errors.ts";
import { lending } from "../../core/lend.ts";
import type { GivenBy, Method } from "./method.ts";
import { ended, handle, noTransaction } from "./handle.ts";
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
    refuseOld(tx);
    return async (sql, parameters) => {
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
  // Kysely before 0.28.12 does not know that a transaction has ended.
  begin: (db, work) =>
    refuseOld(db as Begin)
      .transaction()
      .execute((tx) => lending(tx, work)),
});

/** Without `startTransaction` it is 0.27 or before: its transactions do not know that they have ended, and no driver tells for all of them. */
function refuseOld<T extends object>(db: T): T {
  if ("startTransaction" in db) return db;
  throw new WaybillError(
    "DRIVER_UNFIT",
    "this version of kysely is 0.27 or before, whose transactions do not know that they have ended: use 0.28.12 or later, or the handle of the driver under it",
  );
}
