import { lending, reclaim, unlent, type Loan } from "../../core/lend.ts";
import { lendTurn } from "../../core/lend-turn.ts";
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

interface Turn<Tx> extends Loan<Tx> {
  /**
   * After the call: whether its handle has refused statements since the transaction ended, and nothing of it is left to which a later one
   * could roll back. Otherwise the server is asked.
   */
  leftNothing(): boolean;
  /** Resolves when what it sent has been answered, as far as that is known. */
  answered(): Promise<void>;
}

/** How a transaction for events begins and ends, and how statements run in it. */
export interface EventTransactions<Tx> {
  /** Whether `transaction` fails when the server answers COMMIT with ROLLBACK. Libraries do not look at the answer. */
  readonly hearsOfRollback: boolean;
  /** `first` runs as the transaction begins; the work gets its rows. A transaction that several events share cannot be committed by the work. */
  transaction<T>(first: Statement, shared: boolean, work: (tx: Tx, rows: StatementRows) => Promise<Done<T>>): Promise<T>;
  query(tx: Tx, statement: Statement): Promise<StatementRows>;
  /** The handle for one call of several that share the transaction. */
  turn(tx: Tx): Turn<Tx>;
}

/**
 * PostgreSQL runs the query of a holdable cursor when the transaction commits. This one fails, so a handler's COMMIT rolls back: it would
 * commit the marks of events whose handlers have not run. The text is no boolean; `concat` keeps the planner from finding out.
 */
const guard = {
  set: "DECLARE waybill_batch NO SCROLL CURSOR WITH HOLD FOR SELECT CAST(pg_catalog.concat('waybill: a handler must not commit') AS boolean)",
  drop: "CLOSE waybill_batch",
};

/** What a library's handle needs of a transaction. */
interface Bound<Tx> {
  begin<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  query(tx: Tx, sql: string, values: unknown[]): Promise<{ readonly rows: StatementRows }>;
  lend?(tx: Tx): Loan<Tx>;
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
    hearsOfRollback: false,
    turn(tx) {
      const { handle, takeBack } = library.lend?.(tx) ?? { handle: tx, takeBack: () => undefined };
      return { handle, takeBack, leftNothing: () => false, answered: () => Promise.resolve() };
    },
    transaction: (first, shared, work) =>
      library.begin(async (tx) => {
        if (shared) await query(tx, () => guard.set).catch(explained);
        const { result, last, refused } = await work(tx, await query(tx, first).catch(explained));
        const own = reclaim(tx);
        for (const statement of [last, shared ? () => guard.drop : null])
          if (statement !== null)
            await query(own, statement)
              .catch(explained)
              .catch((error: unknown) => {
                throw refused?.(error) ?? error;
              });
        return result;
      }),
  };
}

const isOpen = (client: PgClient): boolean => client.getTransactionStatus?.() !== "I";

/**
 * On clients of the store's own pool. The handler's handle ends with its transaction. BEGIN, the settings and the first statement are one
 * write, and so are the last statement and COMMIT: writes and answers are half of an event's cost.
 */
export function onOwnClients(connection: Connection, patienceMs: number): EventTransactions<PgClient> {
  // A subscriber that is frozen inside its transaction must not keep its event from the others for ever.
  const begin = `BEGIN; SET LOCAL lock_timeout = ${patienceMs}; SET LOCAL idle_in_transaction_session_timeout = ${patienceMs * 10}; SET LOCAL tcp_user_timeout = ${patienceMs}`;
  return {
    hearsOfRollback: true,
    transaction: (first, shared, work) =>
      connection.lend((client) => {
        const opening = `${begin}${shared ? `; ${guard.set}` : ""}; ${first(literal)}`;
        return transact(client, { place: connection.place, patienceMs }, opening, async (rows) => {
          const { last, ...done } = await lending(
            client,
            (tx) => work(tx, rows),
            () => isOpen(client),
          );
          const ending = [...(last === null ? [] : [last(literal)]), ...(shared ? [guard.drop] : []), "COMMIT"];
          return { ...done, commit: ending.join("; ") };
        });
      }),
    turn(tx) {
      const client = unlent(tx);
      const { mayLeaveSavepoints, ...loan } = lendTurn(client, () => isOpen(client));
      return { ...loan, leftNothing: () => client.getTransactionStatus !== undefined && !mayLeaveSavepoints() };
    },
    query: async (tx, statement) => (await tx.query(statement(literal))).rows,
  };
}
