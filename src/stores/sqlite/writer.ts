import { AsyncLocalStorage } from "node:async_hooks";
import type { SqlTransaction } from "../../contracts/handle.ts";
import type { OutboxWriter, Transactor } from "../../contracts/outbox-store.ts";
import { systemClock as clock } from "../../core/clock.ts";
import { show, WaybillError } from "../../core/errors.ts";
import type { Added, Row } from "../../core/event.ts";
import { refuseLibrary } from "../../core/libraries.ts";
import { createQueue } from "../../core/queue.ts";
import { refuseOther } from "../../drivers/sqlite/clients.ts";
import type { SqliteRow } from "../../drivers/sqlite/connection.ts";
import { explain, inTransaction, isBusy, type SqliteDatabase } from "../../drivers/sqlite/driver.ts";
import { runKept } from "../../drivers/sqlite/kept.ts";
import { copied } from "../kit/writing.ts";
import { append, checkTables, type AppendSteps } from "./append.ts";

/** A client of SQLite, or what a library's handle makes of its own transaction. */
type SqliteTransaction = SqliteDatabase | SqlTransaction;

/**
 * Writes through the user's own transaction. With a synchronous client it throws before it returns, so that a synchronous transaction rolls
 * back too.
 */
export function createWriter(path: string): OutboxWriter<SqliteTransaction> {
  let checked = false;

  function* steps(rows: readonly Row[], alone: boolean): AppendSteps<readonly Added[]> {
    if (!checked) yield* checkTables(path);
    checked = true;
    return yield* append(rows, path, alone);
  }

  return {
    synchronous: true,
    append(tx, rows) {
      refuseLibrary(tx);
      if (isOfLibrary(tx)) return inTurn(tx, steps(copied(rows), false));
      refuseWithoutTransaction(tx);
      refuseOther(path, tx);
      return Promise.resolve(atOnce(tx, steps(rows, true)));
    },
  };
}

const isOfLibrary = (tx: SqliteTransaction): tx is SqlTransaction => typeof (tx as Partial<SqlTransaction>).query === "function";

function atOnce<T>(db: SqliteDatabase, steps: AppendSteps<T>): T {
  let step = steps.next();
  while (step.done !== true) {
    let rows: readonly SqliteRow[];
    try {
      rows = runKept(db, step.value);
    } catch (error) {
      step = steps.throw(error);
      continue;
    }
    step = steps.next(rows);
  }
  return step.value;
}

async function inTurn<T>(tx: SqlTransaction, steps: AppendSteps<T>): Promise<T> {
  let step = steps.next();
  while (step.done !== true) {
    let rows: readonly SqliteRow[];
    try {
      rows = (await tx.query(step.value.sql, [...step.value.values])).rows as readonly SqliteRow[];
    } catch (error) {
      step = steps.throw(error);
      continue;
    }
    step = steps.next(rows);
  }
  return step.value;
}

function refuseWithoutTransaction(db: SqliteDatabase): void {
  let open: boolean;
  try {
    open = inTransaction(db);
  } catch (cause) {
    throw new WaybillError(
      "NO_TRANSACTION",
      `the SQLite handle cannot be used: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  }
  if (!open) {
    throw new WaybillError(
      "NO_TRANSACTION",
      "the SQLite handle has no open transaction: add events between BEGIN and COMMIT, or use outbox.transaction",
    );
  }
}

/** The handles in whose transactions this code runs. One for all stores: each AsyncLocalStorage more would slow every promise down. */
const inside = new AsyncLocalStorage<readonly SqliteDatabase[]>();

/** One transaction at a time per handle: a handle is one connection, and the statements of two would mix. */
export function createTransactor(path: string, lockTimeoutMs: number): Transactor<SqliteDatabase, SqliteDatabase> {
  const queue = createQueue<SqliteDatabase>();

  /** Null when the statement went through; otherwise how long to wait before the next try. A busy BEGIN or COMMIT changed nothing. */
  const attempt = (db: SqliteDatabase, sql: string, until: number): number | null => {
    try {
      db.exec(sql);
      return null;
    } catch (error) {
      if (!isBusy(error) || clock.monotonic() >= until) throw explain(error, path);
      return 3;
    }
  };

  return {
    async transaction(db, work) {
      refuseLibrary(db);
      if (typeof (db as Partial<SqliteDatabase> | null)?.prepare !== "function")
        throw new WaybillError("INVALID_OPTION", `outbox.transaction needs a handle of a SQLite client, not ${show(db)}`);
      const outer = inside.getStore() ?? [];
      if (outer.includes(db)) throw alreadyInside(); // it would wait for itself
      return queue.run([db], async () => {
        if (inTransaction(db)) throw alreadyInside();
        refuseOther(path, db);
        const until = clock.monotonic() + lockTimeoutMs;
        // No await between BEGIN and the work, nor between synchronous work and COMMIT: no other code's statement comes in between.
        for (let wait = attempt(db, "BEGIN IMMEDIATE", until); wait !== null; wait = attempt(db, "BEGIN IMMEDIATE", until))
          await clock.sleep(wait);
        try {
          const pending = inside.run([...outer, db], () => work(db));
          const result = pending instanceof Promise ? await pending : pending;
          if (!inTransaction(db))
            throw new WaybillError(
              "TRANSACTION_LOST",
              "the transaction ended inside the callback: leave COMMIT and ROLLBACK to outbox.transaction",
            );
          const limit = clock.monotonic() + lockTimeoutMs;
          for (let wait = attempt(db, "COMMIT", limit); wait !== null; wait = attempt(db, "COMMIT", limit)) await clock.sleep(wait);
          return result;
        } catch (error) {
          if (inTransaction(db)) db.exec("ROLLBACK");
          throw error;
        }
      });
    },
  };
}

function alreadyInside(): WaybillError {
  return new WaybillError(
    "ALREADY_IN_TRANSACTION",
    "the SQLite handle is inside a transaction already: use outbox.add with it, or another handle",
  );
}
