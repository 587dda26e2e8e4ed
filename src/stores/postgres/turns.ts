import { WaybillError } from "../../core/errors.ts";
import type { EventTransactions, Statement, StatementRows } from "./applying.ts";

/** A setting that ends with the transaction. ROLLBACK TO SAVEPOINT brings back the value that it had at the savepoint. */
const setting = "waybill.turn";
export const turnNow = `pg_catalog.current_setting('${setting}', true)`;

/**
 * The calls that share a transaction, one after the other. A handler may leave a savepoint open, and a later ROLLBACK TO it would undo what
 * other handlers did, whose marks are older. So once a call may have left one, each turn begins with a new value of the setting: one that
 * is gone at the end of the turn tells that somebody has rolled back further than to its beginning.
 */
export function turnsIn<Tx>(applying: EventTransactions<Tx>, tx: Tx, query: (statement: Statement) => Promise<StatementRows>, xid: string) {
  let turn: ReturnType<EventTransactions<Tx>["turn"]> | null = null;
  let told = 0;
  let over = false;
  let ended = false;
  const stays = async (): Promise<boolean> => {
    const [now] = await query(
      (put) => `SELECT pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text AS xid, ${turnNow} AS before,
        pg_catalog.set_config('${setting}', ${put(String(told + 1))}::pg_catalog.text, true) AS turn`,
    );
    const kept = told === 0 || now?.["before"] === String(told);
    told += 1;
    ended = now?.["xid"] !== xid;
    return !ended && kept;
  };
  return {
    /** Null when the transaction has ended, or lost a part of what was done in it. */
    async next(): Promise<Tx | null> {
      turn?.takeBack();
      await turn?.answered();
      const own = applying.turn(tx);
      if ((told > 0 || !(turn ?? own).leftNothing()) && !(await stays())) return null;
      if (over) throw new WaybillError("NO_TRANSACTION", "the work is over");
      return (turn = own).handle;
    },
    /** Whether `next` has found that the transaction is not there any more. */
    ended: () => ended,
    /** Runs all calls. */
    async during(work: () => Promise<void>): Promise<void> {
      try {
        await work();
      } finally {
        over = true;
        turn?.takeBack();
      }
    },
    /** The value that the setting has to have at the end; 0: it was not needed. */
    last: () => told,
  };
}
