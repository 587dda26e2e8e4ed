import { lending } from "../../core/lend.ts";
import type { Connection } from "./connection.ts";
import { explain, type PgClient } from "./driver.ts";
import { literal } from "./names.ts";
import { transact } from "./transactor.ts";

export type StatementRows = readonly Readonly<Record<string, unknown>>[];

/** A statement. `put` decides whether a value is bound as a parameter or written into the SQL. */
export type Statement = (put: Put) => string;
export type Put = (value: string | number) => string;

/** The result of the work, and the statement to run right before COMMIT; null: none. */
interface Done<T> {
  readonly result: T;
  readonly last: Statement | null;
  /** Translates the error when that statement, or the COMMIT in the same write, fails. */
  readonly refused?: (error: unknown) => unknown;
}

/** How a transaction for events begins and ends, and how statements run in it. */
export interface EventTransactions<Tx> {
  /** `first` runs as the transaction begins; the work gets its rows. */
  transaction<T>(first: Statement, work: (tx: Tx, rows: StatementRows) => Promise<Done<T>>): Promise<T>;
  query(tx: Tx, statement: Statement): Promise<StatementRows>;
}

/** What a library's handle needs of a transaction. */
interface Bound<Tx> {
  begin<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  query(tx: Tx, sql: string, values: unknown[]): Promise<{ readonly rows: StatementRows }>;
}

/** In transactions that a library begins and ends. */
export function inLibrary<Tx>(library: Bound<Tx>, place: string): EventTransactions<Tx> {
  const query: EventTransactions<Tx>["query"] = async (tx, statement) => {
    const values: (string | number)[] = [];
    const sql = statement((value) => `$${values.push(value)}`);
    return (await library.query(tx, sql, values)).rows;
  };
  const explained = (error: unknown): never => {
    throw explain(error, place);
  };
  return {
    query,
    transaction: (first, work) =>
      library.begin(async (tx) => {
        const { result, last, refused } = await work(tx, await query(tx, first).catch(explained));
        if (last !== null)
          await query(tx, last)
            .catch(explained)
            .catch((error: unknown) => {
              throw refused?.(error) ?? error;
            });
        return result;
      }),
  };
}

/**
 * On clients of the store's own pool. The handler's handle ends with its transaction. BEGIN, the settings and the first statement are one
 * write, and so are the last statement and COMMIT: writes and answers are half of an event's cost.
 */
export function onOwnClients(connection: Connection, patienceMs: number): EventTransactions<PgClient> {
  // A subscriber that is frozen inside its transaction must not keep its event from the others for ever.
  const begin = `BEGIN; SET LOCAL lock_timeout = ${patienceMs}; SET LOCAL idle_in_transaction_session_timeout = ${patienceMs * 10}; SET LOCAL tcp_user_timeout = ${patienceMs}`;
  return {
    transaction: (first, work) =>
      connection.lend((client) =>
        transact(client, { place: connection.place, patienceMs }, `${begin}; ${first(literal)}`, async (rows) => {
          const isOpen = (): boolean => client.getTransactionStatus?.() !== "I";
          const { last, ...done } = await lending(client, (tx) => work(tx, rows), isOpen);
          return { ...done, commit: last === null ? "COMMIT" : `${last(literal)}; COMMIT` };
        }),
      ),
    query: async (tx, statement) => (await tx.query(statement(literal))).rows,
  };
}
