import { WaybillError } from "../../core/errors.ts";
import type { SqliteDatabase } from "../../drivers/sqlite/driver.ts";

/**
 * The handle a handler works with, for as long as its transaction lasts. A handler that timed out, or forgot an await,
 * would write into the next event's transaction otherwise, and its event would be applied twice. After a ROLLBACK of its own, its
 * statements would commit one by one.
 */
export function lend(db: SqliteDatabase): { readonly handle: SqliteDatabase; takeBack(): void } {
  let lent = true;
  const guard = <T extends object>(target: T): T =>
    new Proxy(target, {
      get(of, name) {
        if (!lent)
          throw new WaybillError("NO_TRANSACTION", "the handler's transaction has ended: await everything before the handler returns");
        const value: unknown = Reflect.get(of, name, of);
        if (typeof value !== "function") return value;
        return (...values: unknown[]) => {
          if (!lent)
            throw new WaybillError("NO_TRANSACTION", "the handler's transaction has ended: await everything before the handler returns");
          if (!isOpen(db))
            throw new WaybillError("NO_TRANSACTION", "the handler ended its transaction: leave COMMIT and ROLLBACK to Waybill");
          const result: unknown = Reflect.apply(value, of, values);
          return isStatement(result) ? guard(result) : result;
        };
      },
    });
  return {
    handle: guard(db),
    takeBack() {
      lent = false;
    },
  };
}

/** Clients that do not tell are trusted; the end of the transaction is noticed when the handler has returned. */
function isOpen(db: object): boolean {
  const { inTransaction, isTransaction } = db as { inTransaction?: unknown; isTransaction?: unknown };
  return (inTransaction ?? isTransaction) !== false;
}

function isStatement(value: unknown): value is object {
  return typeof value === "object" && value !== null && typeof (value as { run?: unknown }).run === "function";
}
