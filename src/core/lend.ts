import { WaybillError } from "./errors.ts";

export interface Loan<T> {
  readonly handle: T;
  takeBack(): void;
}

/** By lent handle, what it stands for, and how its loan ends. */
const loans = new WeakMap<object, { readonly thing: object; takeBack(): void }>();

/** Makes a call on a lent handle by `send`, which may throw: the function's name, what it is given, and its sending. */
export type Through = (name: PropertyKey | undefined, given: readonly unknown[], send: () => unknown) => unknown;
const plainly: Through = (_name, _given, send) => send();

interface Lending<T> {
  readonly through?: Through;
  /** What the thing was made of, where a part of it is lent already. */
  readonly under?: { readonly thing: T; takeBack(): void };
}

/** What a lent handle stands for, and any other thing itself: for what has to outlive the loan, such as a listener. */
export function unlent<T>(handle: T): T {
  return (loans.get(handle as object)?.thing as T | undefined) ?? handle;
}

/**
 * Ends the loan, and returns what the handle stands for. Before our last statements: a statement of the work's that comes between them and
 * COMMIT, and fails, would undo everything.
 */
export function reclaim<T>(handle: T): T {
  loans.get(handle as object)?.takeBack();
  return unlent(handle);
}

/**
 * A handle of a transaction that works until it is taken back. Otherwise, work that timed out or forgot an await would write into the next
 * transaction of the same connection, and its effect would happen twice. `isOpen` says whether the transaction is still open: after the
 * work's own ROLLBACK, statements would commit one by one.
 */
export function lend<T extends object>(thing: T, isOpen = () => true, { through = plainly, under }: Lending<T> = {}): Loan<T> {
  let lent = true;
  const guard = <Target extends object>(target: Target, self?: object, called?: PropertyKey): Target =>
    new Proxy(target, {
      get(of, name) {
        if (!lent) throw ended();
        const value: unknown = Reflect.get(of, name, of);
        if (isFixed(of, name)) return value;
        if (name === "connection" && isObject(value)) return guard(value); // what a client has behind its handle
        return typeof value === "function" ? guard(value, of, name) : value;
      },
      apply(of, _, values) {
        const given: unknown[] = called === "savepoint" ? values.map(inner) : values;
        const result: unknown = through(called, given, () => {
          if (!lent) throw ended();
          if (!isOpen()) throw endedInside();
          return Reflect.apply(of as () => unknown, self, given);
        });
        // A prepared statement of mysql2 runs without the connection's own methods.
        if (called === "prepare" && result instanceof Promise) return result.then(guarded);
        return isLazy(result) || isStatement(result) ? guard(result) : result;
      },
    });
  const guarded = (value: unknown): unknown => (isObject(value) ? guard(value) : value);
  /** A savepoint gives its callback another handle on the same connection. */
  const inner = (value: unknown): unknown =>
    typeof value === "function" ? (...given: unknown[]): unknown => Reflect.apply(value, undefined, given.map(guarded)) as unknown : value;
  const handle = guard(thing);
  const takeBack = (): void => {
    lent = false;
    under?.takeBack();
  };
  loans.set(handle, { thing: unlent(under?.thing ?? thing), takeBack });
  return { handle, takeBack };
}

/** Runs `work` with a handle that works only until `work` is done. */
export async function lending<Tx extends object, T>(tx: Tx, work: (tx: Tx) => Promise<T>, isOpen?: () => boolean): Promise<T> {
  const lent = lend(tx, isOpen);
  try {
    return await work(lent.handle);
  } finally {
    lent.takeBack();
  }
}

/** A query of postgres.js is sent when it is awaited, which may be after the transaction's end. */
function isLazy(value: unknown): value is object {
  return value instanceof Promise && value.constructor !== Promise;
}

/** A prepared statement of SQLite runs without the database's own methods. */
function isStatement(value: unknown): value is object {
  return isObject(value) && "run" in value && typeof value.run === "function";
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

/** A proxy must return a property as it is when it is neither configurable nor writable. */
function isFixed(of: object, name: PropertyKey): boolean {
  const property = Reflect.getOwnPropertyDescriptor(of, name);
  return property !== undefined && property.configurable === false && property.writable === false;
}

function endedInside(): WaybillError {
  return new WaybillError("NO_TRANSACTION", "the transaction ended inside the callback or handler: leave COMMIT and ROLLBACK to Waybill");
}

function ended(): WaybillError {
  return new WaybillError("NO_TRANSACTION", "the transaction has ended: await everything before the callback or handler returns");
}
