import type { Begins, Handle, SqlTransaction } from "../../contracts/handle.ts";
import { show, WaybillError } from "../../core/errors.ts";
import type { Loan } from "../../core/lend.ts";

interface Library<Db, Tx> {
  readonly name: string;
  /** Whether it is a database or a transaction of this library at all. */
  owns(given: Readonly<Record<string, unknown>>): boolean;
  /** How this transaction runs a statement; throws where the library can see that no transaction is open. */
  open(tx: Tx): SqlTransaction["query"];
  /** Whether it is a transaction already: a nested one would be a savepoint, and `outbox.transaction` promises a commit. */
  isInside(db: Db): boolean | Promise<boolean>;
  begin<T>(db: Db, work: (tx: Tx) => Promise<T>): Promise<T>;
  lend?(tx: Tx): Loan<Tx>;
}

export function handle<Db, Tx, B extends Begins>({ name, owns, open, isInside, begin, lend }: Library<Db, Tx>): Handle<Db, Tx, B> {
  const isOwn = (given: unknown): boolean =>
    ((typeof given === "object" && given !== null) || typeof given === "function") && owns(given as Readonly<Record<string, unknown>>);
  const transactionOf = (tx: Tx): SqlTransaction => {
    if (!isOwn(tx)) throw new WaybillError("NO_TRANSACTION", `outbox.add needs a transaction of ${name}, not ${show(tx)}`);
    return { query: open(tx) };
  };
  return Object.assign(transactionOf, {
    async begin<T>(db: Db, work: (tx: Tx) => Promise<T>): Promise<T> {
      if (!isOwn(db))
        throw new WaybillError("INVALID_OPTION", `outbox.transaction needs what ${name} begins transactions on, not ${show(db)}`);
      if (await isInside(db)) throw alreadyInside(name);
      return begin(db, work);
    },
    ...(lend !== undefined && { lend }),
  });
}

export const isMethod = (value: unknown): boolean => typeof value === "function";

/** What many libraries begin a transaction with. */
export interface Begin<Tx> {
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
}

/** `found` says what was given in place of an open transaction. */
export function noTransaction(found: string): WaybillError {
  return new WaybillError("NO_TRANSACTION", `${found}: add events inside the transaction, and await them before it ends`);
}

export function alreadyInside(library: string): WaybillError {
  return new WaybillError(
    "ALREADY_IN_TRANSACTION",
    `the ${library} handle is inside a transaction already: use outbox.add with it, or give the database itself`,
  );
}

export function ended(library: string): WaybillError {
  return noTransaction(`the ${library} transaction has ended`);
}
