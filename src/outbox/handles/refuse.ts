import { WaybillError } from "../../core/errors.ts";

/** `found` says what was given in place of an open transaction. */
export function noTransaction(found: string): WaybillError {
  return new WaybillError("NO_TRANSACTION", `${found}: add events inside the transaction, and await them before it ends`);
}

export function ended(library: string): WaybillError {
  return noTransaction(`the ${library} transaction has ended`);
}

/** A transaction inside another would be a savepoint, and `outbox.transaction` promises a commit. */
export function alreadyInside(library: string): WaybillError {
  return new WaybillError(
    "ALREADY_IN_TRANSACTION",
    `the ${library} handle is inside a transaction already: use outbox.add with it, or give the database itself`,
  );
}
