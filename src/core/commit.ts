import { causesOf, sqlStateOf } from "./causes.ts";
import { isWaybillError, WaybillError } from "./errors.ts";

/** Runs inside a transaction as its last statement. What it returns runs after the commit, and fails unless the database kept it. */
type Prove<Tx> = (tx: Tx) => Promise<() => Promise<void>>;

/**
 * Runs a transaction that `begin` opens and commits. Once the work is done, a failure that is not the database's own refusal does not
 * say whether the transaction was committed, and must not be taken for either: COMMIT_UNKNOWN.
 */
export async function committed<Tx, T>(
  begin: (work: (tx: Tx) => Promise<T>) => Promise<T>,
  work: (tx: Tx) => T | Promise<T>,
  prove?: Prove<Tx>,
): Promise<T> {
  let done = false;
  let proven = async (): Promise<void> => undefined;
  let failure: unknown;
  try {
    const result = await begin(async (tx) => {
      done = false;
      try {
        const value = await work(tx);
        if (prove !== undefined) proven = await prove(tx);
        done = true;
        return value;
      } catch (error) {
        failure = error;
        throw error;
      }
    });
    if (done) {
      await proven();
      return result;
    }
  } catch (error) {
    if (!done || isWaybillError(error) || isRefusal(error)) throw error;
    throw new WaybillError(
      "COMMIT_UNKNOWN",
      "the database did not say whether it kept the transaction: the connection may have been lost",
      {
        cause: error,
      },
    );
  }
  throw failure; // a library that rolls back need not reject: Knex does not for a failure that is undefined
}

/** A lost link (08), a server that ends or kills a session (57P, 70100) and an unknown completion (40003) say nothing about the commit. */
function isRefusal(error: unknown): boolean {
  return causesOf(error).some((cause) => {
    const state = sqlStateOf(cause);
    if (state !== null) return !/^(08|57P|70100|40003)/.test(state);
    const { code } = cause as { code?: unknown };
    return typeof code === "string" && /^SQLITE_(?!IOERR)/.test(code);
  });
}
