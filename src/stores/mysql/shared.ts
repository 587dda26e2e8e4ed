import type { Connection, MysqlServer } from "./connection.ts";
import { WaybillError } from "../../core/errors.ts";
import { parkedVersion } from "../kit/letters.ts";
import { rolledBack, type Events } from "../kit/once.ts";
import { errnoOf, type MysqlConnection } from "./driver.ts";
import { textIn, type AskTransaction } from "./handle.ts";
import type { Names } from "./names.ts";
import { numberOf } from "./rows.ts";
import { staying, type Ends } from "./transactor.ts";

export const among = (ids: readonly string[]): string => `IN (${ids.map(() => "?").join(", ")})`;

/**
 * A handler's COMMIT, TRUNCATE or DDL would commit the marks of events whose handlers have not run. So each event gets its mark when its
 * turn comes, and the mark of the one before it is finished. The marks that are taken away stay locked until the transaction ends.
 */
export function turnByTurn(ask: AskTransaction, n: Names, consumer: string, ids: readonly string[], handlerVersion: number) {
  let begun: readonly string[] | null = null;
  let stayed = async (): Promise<void> => undefined;
  return async (now: readonly string[]): Promise<void> => {
    const others = begun === null ? ids.filter((id) => !now.includes(id)) : [];
    if (others.length > 0) await ask(`DELETE FROM ${n.inbox} WHERE consumer = ? AND event_id ${among(others)}`, [consumer, ...others]);
    if (begun !== null) {
      await stayed();
      const rows = [...begun.map((id) => [consumer, id, handlerVersion, 1]), ...now.map((id) => [consumer, id, handlerVersion, 0])];
      await ask(
        `INSERT INTO ${n.inbox} (consumer, event_id, handler_version, finished) VALUES ${rows.map(() => "(?, ?, ?, ?)").join(", ")}
         ON DUPLICATE KEY UPDATE finished = VALUES(finished)`,
        rows.flat(),
      );
    }
    stayed = await staying(ask);
    begun = now;
  };
}

/** Whether marks that the transaction made are there. A ROLLBACK TO a savepoint leaves some of them, a COMMIT all, and a ROLLBACK none. */
export async function hasOurs(ask: AskTransaction, inbox: string, { consumer, ids }: Events): Promise<boolean> {
  const ours = `consumer = ? AND event_id ${among(ids)} AND handler_version <> ${parkedVersion}`;
  const [row] = await ask(`SELECT COUNT(*) AS marks FROM ${inbox} WHERE ${ours}`, [consumer, ...ids]);
  return textIn(row?.[0]) !== "0";
}

/**
 * After a call that ended its transaction and went on. What it did behind its own ROLLBACK may be committed, and its marks are gone: applied
 * again, its events would have their effect twice. A letter's mark becomes unfinished too.
 */
export async function leaveUnfinished(
  { change }: Connection,
  inbox: string,
  { consumer, ids }: Events,
  handlerVersion: number,
): Promise<void> {
  await change(
    `INSERT INTO ${inbox} (consumer, event_id, handler_version, finished) VALUES ${ids.map(() => "(?, ?, ?, 0)").join(", ")}
     ON DUPLICATE KEY UPDATE finished = IF(handler_version = ${parkedVersion}, 0, finished)`,
    ids.flatMap((id) => [consumer, id, handlerVersion]),
  ).catch(() => undefined);
}

let branches = 0;

/**
 * Inside an XA transaction, the server refuses what would end it: COMMIT, ROLLBACK, START TRANSACTION, TRUNCATE, DDL. It is committed in one
 * phase, and a lost link rolls it back like any other. Null where the server has none, as with Galera, and where a crash of the server
 * inside that commit would leave it prepared, with its locks: with a binary log on MariaDB, and on MySQL before 8.0.30. No name is used
 * twice, because recovery knows a transaction by its name: it would take one for another that the binary log has.
 */
export async function guardedBranch(own: MysqlConnection, { recoversXa, unique }: MysqlServer): Promise<Ends | null> {
  if (!recoversXa) return null;
  const branch = `'waybill ${unique} ${++branches}'`;
  const end = `XA END ${branch}`;
  return own.query(`XA START ${branch}`).then(
    () => ({ commit: [end, `XA COMMIT ${branch} ONE PHASE`], rollback: [end, `XA ROLLBACK ${branch}`] }),
    () => null,
  );
}

/** The handler's failure, where it is that refusal. */
export function refusedEnd(error: unknown, ids: readonly string[]): WaybillError | null {
  if (errnoOf(error) !== 1399) return null;
  const what = `a handler would have ended the transaction of events ${ids.join(", ")}: leave COMMIT and ROLLBACK to Waybill`;
  return new WaybillError("TRANSACTION_LOST", what, { cause: error });
}

/**
 * A statement that the handler did not await may lose a deadlock behind our last one. The server rolls everything back, and the library's
 * COMMIT succeeds. Only the marks show it.
 */
export async function kept({ run }: Connection, n: Names, { consumer, ids }: Events, handlerVersion: number): Promise<void> {
  const [row] = await run(
    `SELECT COUNT(*) AS marks FROM ${n.inbox} WHERE consumer = ? AND event_id ${among(ids)} AND finished = 1 AND handler_version = ?`,
    [consumer, ...ids, handlerVersion],
  );
  if (numberOf(row!, "marks") !== ids.length) throw rolledBack(ids);
}
