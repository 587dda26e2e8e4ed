import type { Applied, NextWork } from "../../contracts/inbox.ts";
import { MarkHeld, SessionEnded } from "../../core/blameless.ts";
import { causesOf, sqlStateOf } from "../../core/causes.ts";
import { systemClock } from "../../core/clock.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import { parkedVersion } from "../kit/letters.ts";
import { misread } from "../kit/misread.ts";
import { rolledBack, type Apply } from "../kit/once.ts";
import { rolledBackInTime, type WatchRollback } from "../kit/rollback.ts";
import type { EventTransactions, Put, StatementRows, Statement } from "./applying.ts";
import type { Connection } from "./connection.ts";
import { explain, isSessionEnd, wasToldOfEnd } from "./driver.ts";
import { readable } from "./guard.ts";
import type { Names } from "./names.ts";
import { turnNow, turnsIn } from "./turns.ts";

/** A query that is cancelled ends at once, or never. */
const cancelMs = 2_000;
/** The error of a statement that would finish another transaction's marks: the SQL function of the schema raises it too. */
const markLost = { state: "22P02", message: "waybill: another transaction" } as const;
/** The same in this transaction, when a part of what was done in it is undone. */
const partLost = "waybill: another turn";
/**
 * These statements run in the transaction of the handler, with its search path. So they qualify what they call: see `ownPath` of the connection.
 */
const [is, join] = ["OPERATOR(pg_catalog.=)", "OPERATOR(pg_catalog.||)"];
const now = "pg_catalog.clock_timestamp()";
const currentXid = "pg_catalog.pg_current_xact_id()::pg_catalog.text";
/** The transaction that makes a mark, and the process to end if that transaction hangs. */
const maker = `${currentXid} ${join} ' ' ${join} pg_catalog.pg_backend_pid()::pg_catalog.text`;

/** Writes the marks, runs the work, then finishes the marks. Only the transaction that made the marks can finish them. */
export function createApply<Tx>(connection: Connection, n: Names, applying: EventTransactions<Tx>): Apply<Tx> {
  const { place } = connection;
  const query: EventTransactions<Tx>["query"] = (tx, statement) =>
    readable(() => applying.query(tx, statement)).catch((error: unknown) => {
      throw explain(error, place);
    });

  return ({ consumer, ids }, handlerVersion, work, letter) => {
    let made: Made | null = null;
    /** The events of the call that runs, and those of one that has ended the transaction and gone on. */
    let running = ids;
    let inDoubt: readonly string[] = [];
    const mark = marking(n, consumer, ids, handlerVersion, letter !== undefined);
    // Locks the letter first and then the mark, in the same order as `park`.
    const redriven: Statement = (put) =>
      `SELECT 1 AS kept FROM ${n.letters} WHERE seq ${is} ${put(String(letter))}::bigint AND redriven_at IS NOT NULL FOR UPDATE NOWAIT`;
    const attempt = async (watch: WatchRollback): Promise<readonly Applied[]> =>
      applying.transaction<readonly Applied[]>(letter === undefined ? mark : redriven, ids.length > 1, async (tx, rows) => {
        if (letter !== undefined && rows.length === 0) return { result: ["seen"], last: null };
        const { xid, fresh } = (made = madeBy(letter === undefined ? rows : await query(tx, mark), ids, place));
        const before =
          fresh.size === ids.length
            ? null
            : await found(
                tx,
                ids.filter((id) => !fresh.has(id)),
              );
        const result = ids.map((id): Applied => (fresh.has(id) ? "done" : (before?.get(id) ?? "seen")));
        if (fresh.size === 0) {
          return {
            result,
            last: letter === undefined ? null : (put) => `DELETE FROM ${n.letters} WHERE seq ${is} ${put(String(letter))}::bigint`,
          };
        }
        const turns = turnsIn(applying, tx, (statement) => query(tx, statement), xid);
        const next: NextWork<Tx> = async (now) => {
          if (fresh.size === 1) return tx;
          const own = await turns.next();
          if (turns.ended()) inDoubt = running;
          running = now;
          return own ?? Promise.reject(lostBy(ids));
        };
        const working = (): Promise<void> => turns.during(async () => work(tx, fresh, next));
        await watch(working).catch(async (error: unknown) => {
          // The handler may have thrown anything. Only a statement shows whether its session is still there.
          await applying
            .query(tx, () => "SELECT 1")
            .catch((told: unknown) => {
              if (isSessionEnd(told)) throw new SessionEnded(place, error);
            });
          throw error;
        });
        return {
          result,
          last: finishing(n, consumer, [...fresh], handlerVersion, { xid, turn: turns.last() }, letter),
          refused: (error) => refusal(error, ids),
        };
      });
    const found = async (tx: Tx, seen: readonly string[]): Promise<ReadonlyMap<string, Applied>> => {
      const marks = await query(
        tx,
        (put) =>
          `SELECT event_id AS id, finished::text AS finished, handler_version::text AS version FROM ${n.inbox} WHERE consumer ${is} ${put(consumer)} AND event_id ${among(seen, put)}`,
      );
      for (const { id, finished } of marks) if (finished === "false") throw unfinished(String(id));
      return new Map(marks.map(({ id, version }) => [String(id), version === String(parkedVersion) ? "parked" : "seen"]));
    };
    const refusal = (error: unknown, of: readonly string[]): unknown => {
      const says = (message: string): boolean =>
        causesOf(error).some((cause) => sqlStateOf(cause) === markLost.state && asError(cause).message.includes(message));
      const gone = says(markLost.message) || isWaybillError(error, "NO_TRANSACTION");
      if (gone) inDoubt = running;
      if (gone || says(partLost)) return lostBy(of);
      const ended = isWaybillError(error, "COMMIT_UNKNOWN") ? wasToldOfEnd(error) : isSessionEnd(error);
      return ended ? new SessionEnded(place, error) : error;
    };
    const surely = async (watch: WatchRollback): Promise<readonly Applied[]> => {
      const applied = await attempt(watch);
      if (made !== null && !applying.hearsOfRollback) await kept(connection, n, consumer, [...made.fresh], handlerVersion);
      return applied;
    };
    // What that call did behind its own ROLLBACK may be committed, and its marks are gone. Applied again, its events would have their effect twice.
    const leaveUnfinished = async (): Promise<void> => {
      const values: (string | number)[] = [];
      const unfinished = marking(n, consumer, inDoubt, handlerVersion, letter !== undefined);
      const text = unfinished((value) => `$${values.push(value)}`);
      await connection.run(text, values).catch(() => undefined);
    };
    // The server does not notice a lost client while it runs that client's query, and the mark would stay locked. After the handler's own COMMIT
    // or ROLLBACK, only its hanging query tells its session from one that a pool has given to others. Its session ends only if that query does
    // not: some clients end the process when they write to a session that has ended.
    const end = (by: "pg_cancel_backend" | "pg_terminate_backend"): Promise<unknown> =>
      connection.run(
        `SELECT ${by}(pid) FROM pg_stat_activity WHERE pid = $1::integer
           AND (backend_xid = $2::xid8::xid OR state = 'active' AND query_start < clock_timestamp() - interval '4 seconds')`,
        [made?.backend, made?.xid],
      );
    const cut = async (): Promise<void> => {
      await end("pg_cancel_backend");
      await systemClock.sleep(cancelMs);
      await end("pg_terminate_backend");
    };
    return rolledBackInTime(surely, cut).catch(async (error: unknown) => {
      if (inDoubt.length > 0 && !applying.hearsOfRollback) await leaveUnfinished();
      const held = made === null && causesOf(error).some((cause) => sqlStateOf(cause) === "55P03");
      throw held ? new MarkHeld(place, error) : error;
    });
  };
}

/**
 * A statement that the handler did not await may fail behind our last one. PostgreSQL then answers COMMIT with ROLLBACK, and the library
 * reports a commit. A savepoint of the handler's may also be rolled back there. Only the marks show it.
 */
async function kept({ run, place }: Connection, n: Names, consumer: string, ids: readonly string[], handlerVersion: number): Promise<void> {
  if (ids.length === 0) return;
  const [row] = await run(
    `SELECT count(*) AS n FROM ${n.inbox} WHERE consumer = $1 AND event_id = ANY (ARRAY(SELECT json_array_elements_text($2::json))) AND finished AND handler_version = $3::integer`,
    [consumer, JSON.stringify(ids), handlerVersion],
  );
  if (row === undefined) throw misread(place);
  if (Number(row["n"]) !== ids.length) throw rolledBack(ids);
}

/** A transaction, and the marks that it made. */
interface Made {
  readonly xid: string;
  readonly backend: string;
  readonly fresh: ReadonlySet<string>;
}

/** One column with spaces in it costs the client less than several columns. A mark without an id belongs to the only event. */
function madeBy(rows: StatementRows, [only]: readonly string[], place: string): Made {
  const marks = rows
    .filter(({ mark }) => mark !== null)
    .map(({ mark }) => {
      const found = /^(\d+) (\d+)(?: ([^]*))?$/.exec(String(mark));
      if (found === null) throw misread(place);
      return found;
    });
  return { xid: marks[0]?.[1] ?? "", backend: marks[0]?.[2] ?? "", fresh: new Set(marks.map(([, , , id]) => id ?? only!)) };
}

const listed = (ids: readonly string[], put: Put): string => `pg_catalog.json_array_elements_text(${put(JSON.stringify(ids))}::json)`;
const among = (ids: readonly string[], put: Put): string => `${is} ANY (ARRAY(SELECT ${listed(ids, put)}))`;

/** Marks the events that have no mark yet, and returns these marks. */
function marking(n: Names, consumer: string, ids: readonly string[], handlerVersion: number, ofLetter: boolean): Statement {
  if (ids.length === 1 && !ofLetter)
    return (put) => `SELECT ${n.mark}(${put(consumer)}::text, ${put(ids[0]!)}::text, ${put(handlerVersion)}::integer) AS mark`;
  // Replaces the mark that the letter left.
  const takeOver = `(consumer, event_id) DO UPDATE SET processed_at = excluded.processed_at, handler_version = excluded.handler_version, finished = false
      WHERE i.handler_version ${is} ${parkedVersion}`;
  return (put) => `${inserting(n, consumer, ids, handlerVersion, "false", put)}
      ON CONFLICT ${ofLetter ? takeOver : "DO NOTHING"} RETURNING ${maker} ${join} ' ' ${join} event_id AS mark`;
}

/** Sorted, so that concurrent transactions lock the marks in the same order. */
function inserting(n: Names, consumer: string, ids: readonly string[], handlerVersion: number, finished: string, put: Put): string {
  return `INSERT INTO ${n.inbox} AS i (consumer, event_id, processed_at, handler_version, finished)
      SELECT ${put(consumer)}, e.id, ${now}, ${put(handlerVersion)}::integer, ${finished} FROM ${listed([...ids].sort(), put)} AS e(id)`;
}

/**
 * The handler may have swallowed a failure that rolled everything back, or ended the transaction itself. Its later statements would then
 * take effect alone. So only the transaction that made the marks can finish them: in any other, a text that is no boolean fails the
 * statement, and with it the COMMIT behind it. A mark that the handler has deleted is recreated.
 */
function finishing(
  n: Names,
  consumer: string,
  ids: readonly string[],
  handlerVersion: number,
  { xid, turn }: { readonly xid: string; readonly turn: number },
  letter?: bigint,
): Statement {
  if (ids.length === 1 && letter === undefined)
    return (put) => `SELECT ${n.finish}(${put(consumer)}::text, ${put(ids[0]!)}::text, ${put(handlerVersion)}::integer, ${put(xid)}::text)`;
  return (put) => {
    const letters = letter === undefined ? "" : `gone AS (DELETE FROM ${n.letters} WHERE seq ${is} ${put(String(letter))}::bigint),`;
    const counts = `counts AS (DELETE FROM ${n.attempts} WHERE consumer ${is} ${put(consumer)} AND event_id ${among(ids, put)})`;
    const kept = turn === 0 ? "ELSE 'true'" : `WHEN ${turnNow} ${is} ${put(String(turn))} THEN 'true' ELSE '${partLost}'`;
    const finished = `(CASE WHEN ${currentXid} OPERATOR(pg_catalog.<>) ${put(xid)} THEN '${markLost.message}' ${kept} END)::boolean`;
    return `WITH ${letters} ${counts} ${inserting(n, consumer, ids, handlerVersion, finished, put)}
      ON CONFLICT (consumer, event_id) DO UPDATE SET finished = excluded.finished`;
  };
}

const lostBy = (ids: readonly string[]): WaybillError =>
  new WaybillError("TRANSACTION_LOST", `the transaction of event ${ids.join(", ")} ended inside its handler`);

const unfinished = (id: string): WaybillError =>
  new WaybillError(
    "EFFECT_UNFINISHED",
    `an earlier attempt of event ${id} ended its transaction before its handler had finished (COMMIT or ROLLBACK in it): part of its effect may be there`,
  );
