import type { Applied, Inbox, InboxKey } from "../../contracts/inbox.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { isWaybillError, WaybillError } from "../../core/errors.ts";
import { createExpiry } from "../kit/expiry.ts";
import { lending, type Loan } from "../../core/lend.ts";
import { lendTurn, type TurnLoan } from "../../core/lend-turn.ts";
import { blamed, Conflict, MarkHeld, SessionEnded } from "../../core/blameless.ts";
import { parkedVersion } from "../kit/letters.ts";
import { onceBy, type Apply, type Events } from "../kit/once.ts";
import { rolledBackInTime, type WatchRollback } from "../kit/rollback.ts";
import type { Connection, MysqlSession } from "./connection.ts";
import { errnoOf, explain, isConflict, isSilence, type MysqlConnection } from "./driver.ts";
import { forgetSome } from "./forget.ts";
import { askOf, textIn, type AskTransaction } from "./handle.ts";
import { leaseColumns, leaseOf } from "./lease-store.ts";
import { keepLetter } from "./keep-letter.ts";
import { quote, type Names } from "./names.ts";
import { numberOf, textOf } from "./rows.ts";
import { among, guardedBranch, hasOurs, kept, leaveUnfinished, refusedEnd, turnByTurn } from "./shared.ts";
import { committing, plainly, stayingInside } from "./transactor.ts";

export interface Applying<Tx> {
  /** Whether `transaction` fails when the server has rolled back before COMMIT. A library cannot tell: the COMMIT of nothing succeeds. */
  readonly hearsOfRollback: boolean;
  /** Begins a transaction. One that several events share is one that its handlers cannot end, where the server has such a thing. */
  transaction<T>(shared: boolean, work: (begun: Begun<Tx>) => Promise<T>): Promise<T>;
}

interface Begun<Tx> {
  /** Runs our statements in it. */
  readonly ask: AskTransaction;
  /** Gives it to a handler. */
  lend(handler: Handler<Tx>): void | Promise<void>;
  /** Gives it to one of several. */
  readonly turn: () => Turn<Tx>;
  /** Whether the server refuses statements of a handler that would end it. */
  readonly guarded: boolean;
  /** Cuts it off, where that can be done. */
  readonly cut?: Cut;
}

type Turn<Tx> = Loan<Tx> & Partial<TurnLoan<Tx>>;
type Cut = () => Promise<void>;
type Handler<Tx> = (tx: Tx) => void | Promise<void>;

const attempts = 5;
/** The wait for the lock timed out; or another session has the lock, and the statement said NOWAIT. */
const lockHeld = [1205, 3572];
/** How long the server may take to end a connection that was killed. */
const cutMs = 5_000;

/** The database in which transactions begin, and the names of its tables: a handler may switch to another database with USE. */
interface Home {
  readonly database: string | null;
  readonly names: Names;
}

export function createInbox<Tx>(connection: Connection, n: Names, applying: Applying<Tx>, clock: Clock): Inbox<Tx> {
  const expiry = createExpiry(clock);
  let home: Home | undefined;
  const findHome = async (ask: AskTransaction): Promise<Home> => {
    const database = databaseIn(await ask("SELECT DATABASE() AS home"));
    if (database === null || database.includes("?")) return { database: null, names: n }; // a ? in a name would be taken for a value
    return { database, names: n.inside(database) };
  };
  /** A session goes back to its pool in the database that it came in: the next event's statements must not run in another one. */
  const goHome = async (ask: AskTransaction, rows: Awaited<ReturnType<AskTransaction>>, { database }: Home): Promise<void> => {
    if (database !== null && databaseIn(rows) !== database) await ask(`USE ${quote(database)}`);
  };
  const apply: Apply<Tx> = ({ consumer, ids }, handlerVersion, work, letter) => {
    let cutOff: Cut | undefined;
    let finished: { readonly n: Names; readonly ids: readonly string[] } | null = null;
    /** The events of the call that runs, and those of one that has ended the transaction and gone on. */
    let running = ids;
    let inDoubt: readonly string[] = [];
    const attempt = (watch: WatchRollback): Promise<readonly Applied[]> =>
      applying.transaction<readonly Applied[]>(ids.length > 1, async ({ ask: own, lend, turn: begin, guarded, cut }) => {
        cutOff = cut;
        const ask: AskTransaction = (sql, values) =>
          own(sql, values).catch((error: unknown) => {
            throw explain(error, connection.place);
          });
        const at = (home ??= await findHome(ask));
        const { letters } = at.names;
        const dropLetter = async (): Promise<unknown> => letter !== undefined && ask(`DELETE FROM ${letters} WHERE seq = ${letter}`);
        // Locks the letter first and then the mark, in the same order as `keepLetter`.
        const redriven = `SELECT 1 AS kept FROM ${letters} WHERE seq = ${letter} AND redriven_at IS NOT NULL FOR UPDATE NOWAIT`;
        const marking = async (): Promise<readonly Applied[] | null> =>
          letter !== undefined && (await ask(redriven)).length === 0
            ? null
            : mark(ask, at.names, { consumer, ids }, handlerVersion, letter !== undefined);
        const before = await marking().catch((error: unknown) => {
          throw lockHeld.includes(errnoOf(error) ?? 0) ? new MarkHeld(connection.place, error) : error;
        });
        if (before === null) return ["seen"];
        const fresh = new Set(ids.filter((_, index) => before[index] === "done"));
        if (fresh.size === 0) {
          await dropLetter();
          return before;
        }
        const dead = (told: unknown, why: unknown): void => {
          if (isSilence(told)) throw new SessionEnded(connection.place, why);
        };
        const inSession: AskTransaction = (sql) =>
          ask(sql).catch((error: unknown) => {
            dead(error, error);
            throw error;
          });
        let over = false;
        // After the transaction's end, a mark would be committed by itself.
        const during: AskTransaction = (sql, values) => (over ? Promise.reject(ended()) : ask(sql, values));
        let turn: Turn<Tx> | undefined;
        const turns = turnByTurn(during, at.names, consumer, [...fresh], handlerVersion);
        const lost = async (error: unknown): Promise<never> => {
          const looks = isWaybillError(error, "TRANSACTION_LOST") && !applying.hearsOfRollback;
          if (looks && !(await hasOurs(ask, at.names.inbox, { consumer, ids: [...fresh] }))) inDoubt = running;
          throw error;
        };
        let done = false;
        const working = async (renew: () => Promise<void>): Promise<void> => {
          const next = async (now: readonly string[]): Promise<Tx> => {
            turn?.takeBack();
            if (over) throw ended();
            if (fresh.size > 1 && !guarded) await turns(now).catch(lost);
            else if (turn?.mayLeaveSavepoints?.() === true) await renew();
            if (over) throw ended();
            running = now;
            return (turn = begin()).handle;
          };
          try {
            await lend((tx) => work(tx, fresh, next));
          } finally {
            over = true;
            turn?.takeBack();
          }
        };
        await stayingInside(inSession, (renew) =>
          watch(() => working(renew))
            .catch(async (error: unknown) => {
              // The handler may have thrown anything. Only a statement in its session shows whether the session is still there.
              await own("SELECT DATABASE() AS home")
                .then((rows) => goHome(own, rows, at))
                .catch((told: unknown) => dead(told, error));
              throw refusedEnd(error, ids) ?? error;
            })
            .then(() => void (done = true)),
        ).catch((error: unknown) => (done ? lost(error) : Promise.reject(error)));
        await finish(ask, at.names, { consumer, ids: [...fresh] }, (rows) => goHome(ask, rows, at));
        await dropLetter();
        finished = { n: at.names, ids: [...fresh] };
        return before;
      });
    const surely = async (watch: WatchRollback): Promise<readonly Applied[]> => {
      const applied = await attempt(watch);
      if (finished !== null && !applying.hearsOfRollback)
        await kept(connection, finished.n, { consumer, ids: finished.ids }, handlerVersion);
      return applied;
    };
    return rolledBackInTime(surely, async () => cutOff?.()).catch(async (error: unknown) => {
      if (inDoubt.length > 0) await leaveUnfinished(connection, (home?.names ?? n).inbox, { consumer, ids: inDoubt }, handlerVersion);
      throw error;
    });
  };

  return {
    once: onceBy(async (keys, handlerVersion, work, letter) => {
      for (let attempt = 1; ; attempt++) {
        try {
          return await apply(keys, handlerVersion, work, letter);
        } catch (error) {
          const told = blamed(connection.place, error, isConflict);
          // A batch that lost a conflict is the caller's business: run again at once, it would meet the same batches.
          if (!(told instanceof Conflict) || keys.ids.length > 1 || attempt === attempts) throw told;
        }
      }
    }),
    failed: (key, error) =>
      connection.transaction(async ({ run, change }) => {
        await change(
          `INSERT INTO ${n.attempts} (consumer, event_id, attempts, last_error) VALUES (?, ?, 1, ?)
           ON DUPLICATE KEY UPDATE attempts = attempts + 1, last_error = VALUES(last_error), failed_at = UTC_TIMESTAMP(6)`,
          [key.consumer, key.id, error],
        );
        const [row] = await run(`SELECT attempts FROM ${n.attempts} WHERE consumer = ? AND event_id = ?`, [key.consumer, key.id]);
        return numberOf(row!, "attempts");
      }),
    park: (letter) => connection.transaction((session) => keepLetter(session, n, letter)),
    async forget(before, limit, consumer) {
      const counts = await forgetSome(connection, n.attempts, "failed_at", before, limit, consumer);
      return counts + (await forgetSome(connection, n.inbox, "processed_at", before, limit, consumer));
    },
    sit: (seat, ttlMs) =>
      connection.transaction(async ({ run, change }) => {
        const place = [seat.consumer, seat.topic];
        const ttl = Math.round(ttlMs);
        // If the seat is taken, this changes nothing but locks the row.
        await change(
          `INSERT INTO ${n.seats} (consumer, topic, owner, renewed_at, expires_at, ttl_ms, renewals)
           SELECT ?, ?, ?, t.now, t.now + INTERVAL ${ttl * 1000} MICROSECOND, ${ttl}, 1 FROM (SELECT UTC_TIMESTAMP(6) AS now) t
           ON DUPLICATE KEY UPDATE renewals = ${n.seats}.renewals`,
          [...place, seat.owner],
        );
        const [row] = await run(
          `SELECT CAST(s.owner AS BINARY) AS owner, ${leaseColumns("s")} FROM ${n.seats} s WHERE s.consumer = ? AND s.topic = ? FOR UPDATE`,
          place,
        );
        const other = row !== undefined && !["", seat.owner].includes(textOf(row, "owner"));
        if (other && expiry.isLive(JSON.stringify([...place, textOf(row, "owner")]), leaseOf(row))) return false;
        const now = "UTC_TIMESTAMP(6)"; // one and the same throughout a statement
        await change(
          `UPDATE ${n.seats} SET owner = ?, renewed_at = ${now}, expires_at = ${now} + INTERVAL ${ttl * 1000} MICROSECOND, ttl_ms = ${ttl},
             renewals = renewals + 1 WHERE consumer = ? AND topic = ?`,
          [seat.owner, ...place],
        );
        return true;
      }),
    async leave(seat) {
      const now = "UTC_TIMESTAMP(6)";
      await connection.change(
        `UPDATE ${n.seats} SET owner = '', renewed_at = ${now}, expires_at = ${now}, ttl_ms = 0, renewals = renewals + 1
         WHERE consumer = ? AND topic = ? AND owner = ?`,
        [seat.consumer, seat.topic, seat.owner],
      );
    },
  };
}

/**
 * "done" for an event that had no mark, or the mark of the letter that is applied now. Of two transactions, the second waits here for the
 * first. A handler's statement that commits implicitly commits the marks too, with half an effect: so only a finished mark counts.
 */
async function mark(
  ask: AskTransaction,
  n: Names,
  { consumer, ids }: Events,
  handlerVersion: number,
  ofLetter: boolean,
): Promise<readonly Applied[]> {
  const sorted = [...ids].sort(); // two transactions lock them in the same order
  try {
    const values = sorted.flatMap((id) => [consumer, id, handlerVersion]);
    const rows = ids.map(() => "(?, ?, ?, 0)").join(", ");
    await ask(`INSERT INTO ${n.inbox} (consumer, event_id, handler_version, finished) VALUES ${rows}`, values);
    return ids.map(() => "done");
  } catch (error) {
    if (errnoOf(error) !== 1062) throw error;
  }
  if (ids.length === 1) return [await markBefore(ask, n, { consumer, id: ids[0]! }, handlerVersion, ofLetter)];
  // One by one: a locking read of several would lock the gaps of marks that do not exist.
  const before = new Map<string, Applied>();
  for (const id of sorted) before.set(id, (await mark(ask, n, { consumer, ids: [id] }, handlerVersion, ofLetter))[0]!);
  return ids.map((id) => before.get(id)!);
}

async function markBefore(
  ask: AskTransaction,
  n: Names,
  { consumer, id }: InboxKey,
  handlerVersion: number,
  ofLetter: boolean,
): Promise<Applied> {
  // A locking read, which sees the mark as it is now, whatever snapshot the transaction has. The failed insert has locked the mark.
  const found = await ask(
    `SELECT IF(finished = 1, IF(handler_version = ${parkedVersion}, 'parked', 'seen'), 'open') AS mark FROM ${n.inbox}
     WHERE consumer = ? AND event_id = ? ${ofLetter ? "FOR UPDATE" : "LOCK IN SHARE MODE"}`,
    [consumer, id],
  );
  const before = textIn(found[0]?.[0]);
  if (before === "parked" && ofLetter) {
    await ask(
      `UPDATE ${n.inbox} SET handler_version = ?, finished = 0, processed_at = UTC_TIMESTAMP(6) WHERE consumer = ? AND event_id = ?`,
      [handlerVersion, consumer, id],
    );
    return "done";
  }
  if (before === "parked" || before === "seen") return before;
  throw new WaybillError(
    "EFFECT_UNFINISHED",
    "an earlier attempt ended its transaction before its handler had finished (COMMIT, ROLLBACK, TRUNCATE, DDL or LOCK TABLES in it): part of its effect may be there",
  );
}

/** A handler may have deleted a mark; without it, the event would be applied again. */
async function finish(
  ask: AskTransaction,
  n: Names,
  { consumer, ids }: Events,
  look: (rows: Awaited<ReturnType<AskTransaction>>) => Promise<void>,
): Promise<void> {
  const ours = `WHERE consumer = ? AND event_id ${among(ids)}`;
  const key = [consumer, ...ids];
  // A DELETE that finds no row would lock the gap, and other events' counts with it.
  const found = await ask(
    `SELECT DATABASE() AS home, (SELECT COUNT(*) FROM ${n.inbox} ${ours}) AS marks,
       (SELECT COUNT(*) FROM ${n.attempts} ${ours}) AS counts`,
    [...key, ...key],
  );
  await look(found);
  const [, marks, counts] = found[0] ?? [];
  if (textIn(marks) !== String(ids.length))
    throw new WaybillError("TRANSACTION_LOST", `the mark of event ${ids.join(", ")} went away inside its handler`);
  if (textIn(counts) !== "0") await ask(`DELETE FROM ${n.attempts} ${ours}`, key);
  await ask(`UPDATE ${n.inbox} SET finished = 1 ${ours}`, key);
}

const ended = (): WaybillError => new WaybillError("NO_TRANSACTION", "the work is over");

function databaseIn([row]: Awaited<ReturnType<AskTransaction>>): string | null {
  const name = row?.[0] ?? null;
  return name === null ? null : textIn(name);
}

/**
 * Uses connections of the store's own pool; the handler's handle ends with its transaction. With autocommit off, statements after a
 * deadlock that the handler swallowed are not kept either: otherwise each would be committed at once.
 */
export function onOwnConnections(connection: Connection): Applying<MysqlConnection> {
  return {
    hearsOfRollback: true,
    transaction: (shared, work) =>
      connection.lend(async (own, server) => {
        // While a server runs a query, it does not notice that the client has gone, and the mark would stay locked. Behind a load balancer,
        // another session may be on another server, where this id is another client's.
        let over = false;
        const cut: Cut = async () => {
          const kill = ({ run, server: other }: MysqlSession): Promise<unknown> | undefined =>
            over || other.at !== server.at ? undefined : run(`KILL ${server.id}`);
          await connection.session(async (session) => kill(session)).catch(() => undefined);
          await systemClock.sleep(cutMs); // the client does not report a close that it made itself
          if (!over) own.destroy();
        };
        try {
          const branch = shared ? await guardedBranch(own, server) : null;
          const lend = (handler: Handler<MysqlConnection>): Promise<void> => lending(own, async (lent) => handler(lent));
          const turn = (): TurnLoan<MysqlConnection> => lendTurn(own);
          const begun = { ask: askOf(own), lend, turn, guarded: branch !== null, cut };
          return await committing(own, connection, branch ?? plainly, () => work(begun));
        } finally {
          over = true;
        }
      }),
  };
}
