import { lend, type Loan, type Through } from "./lend.ts";

/** A handle for one of the calls that share a transaction. */
export interface TurnLoan<T> extends Loan<T> {
  /** Whether the call may have made a savepoint, to which a later one could roll back. */
  mayLeaveSavepoints(): boolean;
  /** Resolves when what it sent has been answered, so that it is known whether the transaction is open. */
  answered(): Promise<void>;
}

/** How a client of `pg` reports whether its transaction is open. */
interface Reporting {
  getTransactionStatus?(): string | null;
  query?(text: string): Promise<unknown>;
}

/** A stored procedure of MySQL can make a savepoint. */
const makesSavepoint = /savepoint|\b(call|execute)\b/i;

/**
 * Statements go one at a time, as the client would send them. But each looks whether the transaction is still open when it is sent: one that
 * already waits behind a COMMIT would commit by itself.
 */
export function lendTurn<T extends object>(thing: T, isOpen?: () => boolean): TurnLoan<T> {
  const client = thing as Reporting;
  let savepoints = false;
  let last: Promise<void> | null = null;
  // PostgreSQL sends the error of a COMMIT before it reports that the transaction has ended. An empty statement is sent after the report.
  const reported = async (): Promise<void> => {
    if (client.getTransactionStatus !== undefined) await client.query?.("").catch(() => undefined);
  };
  let failed = false;
  const ready = async (): Promise<void> => {
    await last;
    if (failed) await reported();
    failed = false;
  };
  const through: Through = (name, given, send) => {
    if (name !== "query" && name !== "execute" && name !== "prepare") return send();
    const text = textOf(given[0]);
    // A prepared statement runs without its text.
    if (text === null ? name !== "execute" : makesSavepoint.test(text)) savepoints = true;
    const byCallback = typeof given.at(-1) === "function";
    const result = byCallback || (last === null && !failed) ? send() : ready().then(send);
    if (!(result instanceof Promise)) {
      savepoints = true; // nobody can tell when it is answered, or what it is
      return result;
    }
    const answered: Promise<void> = result
      .then(
        () => undefined,
        () => void (failed = true),
      )
      .then(() => {
        if (last === answered) last = null;
      });
    last = answered;
    return result;
  };
  return { ...lend(thing, isOpen, { through }), mayLeaveSavepoints: () => savepoints, answered: ready };
}

function textOf(given: unknown): string | null {
  if (typeof given === "string") return given;
  const { text, sql } = (given ?? {}) as { readonly text?: unknown; readonly sql?: unknown };
  return typeof text === "string" ? text : typeof sql === "string" ? sql : null;
}
