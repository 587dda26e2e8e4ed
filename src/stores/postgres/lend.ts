import { WaybillError } from "../../core/errors.ts";
import type { PgClient } from "./driver.ts";

/**
 * The client a handler works with, for as long as its transaction lasts. A handler that timed out, or forgot an await,
 * would write into the next event's transaction otherwise, and its event would be applied twice.
 */
export function lend(client: PgClient): { readonly handle: PgClient; takeBack(): void } {
  let lent = true;
  const refuse = (): void => {
    if (!lent) throw new WaybillError("NO_TRANSACTION", "the handler's transaction has ended: await everything before the handler returns");
  };
  return {
    handle: new Proxy(client, {
      get(of, name) {
        refuse();
        const value: unknown = Reflect.get(of, name, of);
        if (typeof value !== "function") return value;
        return (...values: unknown[]): unknown => {
          refuse();
          return Reflect.apply(value, of, values);
        };
      },
    }),
    takeBack() {
      lent = false;
    },
  };
}
