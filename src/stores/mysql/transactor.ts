import { AsyncLocalStorage } from "node:async_hooks";
import type { Transactor } from "../../contracts/outbox-store.ts";
import { show, WaybillError } from "../../core/errors.ts";
import { refuseLibrary } from "../../core/libraries.ts";
import { createQueue } from "../../core/queue.ts";
import { systemRandom } from "../../core/random.ts";
import type { ServerPlace } from "../kit/pool.ts";
import { errnoOf, explain, isSilence, type MysqlConnection, type MysqlPool } from "./driver.ts";
import { inMysqlTransaction, inTransaction, isUnprepared, onPool } from "./pool.ts";

/** What begins a transaction: a pool, or one connection. */
export type MysqlDatabase = MysqlPool | MysqlConnection;

/** The connections whose transactions this code runs inside of. */
const inside = new AsyncLocalStorage<readonly object[]>();

export function createTransactor(at: ServerPlace): Transactor<MysqlDatabase, MysqlConnection> {
  const queue = createQueue<object>();

  return {
    async transaction(db, work) {
      refuseLibrary(db);
      if (isPool(db)) return onPool(db, at, (connection) => runTransaction(connection, at, work));
      if (typeof (db as Partial<MysqlConnection> | null)?.query !== "function")
        throw new WaybillError("INVALID_OPTION", `outbox.transaction needs a pool or a connection of mysql2/promise, not ${show(db)}`);
      const outer = inside.getStore() ?? [];
      if (outer.includes(db)) throw alreadyInside(); // it would wait for itself
      // A connection has one transaction at a time: the statements of two would mix.
      return queue.run([db], async () => {
        // START TRANSACTION would commit an open transaction.
        if (await inTransaction((sql) => db.query(sql))) throw alreadyInside();
        return inside.run([...outer, db], () => runTransaction(db, at, work));
      });
    },
  };
}

function isPool(db: MysqlDatabase): db is MysqlPool {
  return typeof (db as Partial<MysqlPool> | null)?.getConnection === "function";
}

const runTransaction = <T>(connection: MysqlConnection, at: ServerPlace, work: (tx: MysqlConnection) => T | Promise<T>): Promise<T> =>
  committing(connection, at, plainly, async (query) => {
    await query("START TRANSACTION");
    return stayingInside(query, () => work(connection));
  });

/** The statements that end a transaction; the last of each decides. */
export interface Ends {
  readonly commit: readonly string[];
  readonly rollback: readonly string[];
}

export const plainly: Ends = { commit: ["COMMIT"], rollback: ["ROLLBACK"] };

type Query = (sql: string) => Promise<unknown>;

/** The outcome of a COMMIT without an answer is unknown, so it is never retried. `work` has to check by itself that it stayed inside. */
export async function committing<T>(
  connection: MysqlConnection,
  { place, patienceMs }: ServerPlace,
  ends: Ends,
  work: (query: Query) => Promise<T>,
): Promise<T> {
  const query: Query = (sql) =>
    connection.query({ sql, timeout: patienceMs }).catch((error: unknown) => {
      throw sql === ends.commit.at(-1) ? commitError(error, place) : explain(error, place);
    });
  let result: T;
  try {
    result = await work(query);
  } catch (error) {
    for (const sql of ends.rollback) await query(sql).catch(() => undefined);
    throw error;
  }
  for (const sql of ends.commit) await query(sql);
  return result;
}

/** No handler can roll back to it. One name for all transactions, because the server keeps statistics of each statement's text. */
const savepoint = `waybill_${Buffer.from(systemRandom.bytes(8)).toString("hex")}`;

/**
 * A deadlock rolls the whole transaction back, and statements such as COMMIT end it. Work that swallows the deadlock's error, or runs such
 * a statement, goes on outside. The savepoint exists at the end only if the transaction is the one that it was made in.
 */
export async function stayingInside<T>(query: Query, work: (renew: () => Promise<void>) => T | Promise<T>): Promise<T> {
  let stayed = await staying(query);
  // The server takes all later savepoints away with it.
  const renew = async (): Promise<void> => {
    await stayed();
    stayed = await staying(query);
  };
  const result = await work(renew);
  await stayed();
  return result;
}

/** Makes the savepoint. What it answers fails unless the savepoint is still there, and takes it away. */
export async function staying(query: Query): Promise<() => Promise<void>> {
  const kept = await query(`SAVEPOINT ${savepoint}`).then(
    () => true,
    (error: unknown) => {
      if (isUnprepared(error)) return false;
      throw error;
    },
  );
  return async () => {
    if (!kept) {
      // Nor could this library begin another transaction by a statement.
      if (!(await inMysqlTransaction(query))) throw transactionLost();
      return;
    }
    try {
      await query(`RELEASE SAVEPOINT ${savepoint}`);
    } catch (error) {
      throw errnoOf(error) === 1305 ? transactionLost(error) : error;
    }
  };
}

function transactionLost(cause?: unknown): WaybillError {
  return new WaybillError(
    "TRANSACTION_LOST",
    "the transaction ended before the work inside it was done: leave COMMIT and ROLLBACK to Waybill, and let a deadlock's error pass",
    { cause },
  );
}

function commitError(error: unknown, place: string): Error {
  if (!isSilence(error)) return explain(error, place);
  return new WaybillError("COMMIT_UNKNOWN", `the connection to ${place} was lost while COMMIT was under way`, { cause: error });
}

function alreadyInside(): WaybillError {
  return new WaybillError(
    "ALREADY_IN_TRANSACTION",
    "the connection is inside a transaction already: use outbox.add with it, or give outbox.transaction the pool",
  );
}
