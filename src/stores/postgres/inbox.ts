import type { Applied, Inbox, InboxKey } from "../../contracts/inbox.ts";
import { causesOf, sqlStateOf } from "../../core/causes.ts";
import { isWaybillError, WaybillError } from "../../core/errors.ts";
import type { Clock } from "../../core/clock.ts";
import { createExpiry } from "../kit/expiry.ts";
import { lending } from "../../core/lend.ts";
import { letterColumns, marksEvent, parkedVersion, renewedColumns } from "../kit/letters.ts";
import { MarkHeld, SessionEnded } from "../../core/blameless.ts";
import { again } from "../kit/pool.ts";
import { rolledBackInTime, type WatchRollback } from "../kit/rollback.ts";
import type { Connection } from "./connection.ts";
import { explain, isConflict, isSessionEnd, type PgClient } from "./driver.ts";
import { leaseColumns, leaseOf, renewalOf } from "./lease-store.ts";
import type { Names } from "./names.ts";
import { storable } from "./rows.ts";
import { runTransaction } from "./transactor.ts";

/** How a transaction for one event begins, and how statements run in it. */
export interface Applying<Tx> {
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  query(tx: Tx, sql: string, values: readonly unknown[]): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

export function createInbox<Tx>(connection: Connection, n: Names, applying: Applying<Tx>, clock: Clock): Inbox<Tx> {
  const expiry = createExpiry(clock);
  const query: Applying<Tx>["query"] = (tx, sql, values) =>
    applying.query(tx, sql, values).catch((error: unknown) => {
      throw explain(error, connection.place);
    });

  /** The letter first and then the mark, as whoever parks locks them. */
  const waiting: Applying<Tx>["query"] = (tx, sql, values) =>
    query(tx, sql, values).catch((error: unknown) => {
      throw causesOf(error).some((cause) => sqlStateOf(cause) === "55P03") ? new MarkHeld(connection.place, error) : error;
    });
  /** In place of the mark that the letter left. */
  const takeOver = `(consumer, event_id) DO UPDATE SET processed_at = excluded.processed_at, handler_version = excluded.handler_version, finished = false
         WHERE i.handler_version = ${parkedVersion}`;
  const dropLetter = `DELETE FROM ${n.letters} WHERE seq = $1::bigint`;

  const apply = (key: InboxKey, handlerVersion: number, work: (tx: Tx) => void | Promise<void>, letter?: bigint): Promise<Applied> => {
    let marked: Readonly<Record<string, unknown>> | undefined;
    const attempt = (watch: WatchRollback) =>
      applying.transaction<Applied>(async (tx) => {
        if (letter !== undefined) {
          const kept = `SELECT 1 AS kept FROM ${n.letters} WHERE seq = $1::bigint AND redriven_at IS NOT NULL FOR UPDATE NOWAIT`;
          if ((await waiting(tx, kept, [String(letter)])).length === 0) return "seen";
        }
        [marked] = await waiting(
          tx,
          `INSERT INTO ${n.inbox} AS i (consumer, event_id, processed_at, handler_version, finished) VALUES ($1, $2, clock_timestamp(), $3, false)
         ON CONFLICT ${letter === undefined ? "DO NOTHING" : takeOver} RETURNING pg_current_xact_id()::text AS xid, pg_backend_pid()::text AS backend`,
          [key.consumer, key.id, handlerVersion],
        );
        if (marked === undefined) {
          const [mark] = await query(
            tx,
            `SELECT finished::text AS finished, handler_version::text AS version FROM ${n.inbox} WHERE consumer = $1 AND event_id = $2`,
            [key.consumer, key.id],
          );
          if (mark?.["finished"] === "false") throw unfinished(key);
          if (letter !== undefined) await query(tx, dropLetter, [String(letter)]);
          return mark?.["version"] === String(parkedVersion) ? "parked" : "seen";
        }
        await watch(async () => work(tx)).catch(async (error: unknown) => {
          // The handler may have thrown anything. Whether its session is there is what the session itself tells.
          await applying.query(tx, "SELECT 1", []).catch((told: unknown) => {
            if (isSessionEnd(told)) throw new SessionEnded(connection.place, error);
          });
          throw error;
        });
        // The handler may have swallowed a failure that rolled everything back, or ended the transaction itself: what it did
        // after that would stand alone. So the mark is finished only by the transaction that made it.
        const kept = await query(
          tx,
          `WITH counts AS (DELETE FROM ${n.attempts} WHERE consumer = $1 AND event_id = $2 AND pg_current_xact_id()::text = $3)
         UPDATE ${n.inbox} SET processed_at = clock_timestamp(), finished = true
         WHERE consumer = $1 AND event_id = $2 AND pg_current_xact_id()::text = $3 RETURNING 1 AS kept`,
          [key.consumer, key.id, marked["xid"]],
        ).catch((error: unknown) => {
          if (isWaybillError(error, "NO_TRANSACTION")) return []; // the handle noticed first
          throw isSessionEnd(error) ? new SessionEnded(connection.place, error) : error;
        });
        if (letter !== undefined && kept.length === 1) await query(tx, dropLetter, [String(letter)]);
        if (kept.length !== 1) throw new WaybillError("TRANSACTION_LOST", `the transaction of event ${key.id} ended inside its handler`);
        return "done";
      });
    // A server does not notice that a client has gone while it runs its query, and the mark would stay locked.
    return rolledBackInTime(attempt, () =>
      connection.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1::integer AND backend_xid = $2::xid8::xid", [
        marked?.["backend"],
        marked?.["xid"],
      ]),
    );
  };

  return {
    once: (key, handlerVersion, work, letter) => again(() => apply(key, handlerVersion, work, letter), isConflict),
    async failed(key, error) {
      const [row] = await connection.run(
        `INSERT INTO ${n.attempts} AS a (consumer, event_id, attempts, last_error, failed_at) VALUES ($1, $2, 1, $3, clock_timestamp())
         ON CONFLICT (consumer, event_id) DO UPDATE SET attempts = a.attempts + 1, last_error = excluded.last_error, failed_at = excluded.failed_at
         RETURNING attempts`,
        [key.consumer, key.id, storable(error)],
      );
      return Number(row!["attempts"]);
    },
    async park(letter) {
      const kept = letter.again === undefined ? letterColumns(letter) : renewedColumns(letter);
      const columns = kept.map(([column]) => column).join(", ");
      const values = kept.map((_, at) => `$${at + 1}`).join(", ");
      const key = [letter.consumer, letter.envelope.id];
      await connection.transaction(async (run) => {
        // Whoever holds it must not make other events wait: the subscriber tries again.
        if (letter.again !== undefined) await run(`SELECT 1 FROM ${n.letters} WHERE seq = ${letter.again} FOR UPDATE NOWAIT`);
        await run(
          letter.again === undefined
            ? `INSERT INTO ${n.letters} (${columns}) VALUES (${values}) ON CONFLICT (consumer, topic, id, digest) DO NOTHING`
            : `UPDATE ${n.letters} SET redriven_at = NULL, (${columns}) = ROW (${values}) WHERE seq = ${letter.again}`,
          kept.map(([, value]) => value),
        );
        if (!marksEvent(letter)) return;
        await run(
          `WITH counts AS (DELETE FROM ${n.attempts} WHERE consumer = $1 AND event_id = $2)
           INSERT INTO ${n.inbox} (consumer, event_id, processed_at, handler_version, finished) VALUES ($1, $2, clock_timestamp(), ${parkedVersion}, true)
           ON CONFLICT DO NOTHING`,
          key,
        );
      });
    },
    async forget(before, limit, consumer) {
      const old = (table: string, moment: string): string =>
        `DELETE FROM ${table} t USING (SELECT consumer, event_id FROM ${table} WHERE ${moment} < $1::timestamptz AND ($3::text IS NULL OR consumer = $3) ORDER BY ${moment} LIMIT $2::integer
           FOR UPDATE SKIP LOCKED) o WHERE t.consumer = o.consumer AND t.event_id = o.event_id RETURNING 1`;
      const [row] = await connection.run(
        `WITH marks AS (${old(n.inbox, "processed_at")}), counts AS (${old(n.attempts, "failed_at")})
         SELECT (SELECT count(*) FROM marks) + (SELECT count(*) FROM counts) AS n`,
        [before.toISOString(), limit, consumer ?? null],
      );
      return Number(row!["n"]);
    },
    async sit(seat, ttlMs) {
      const place = [seat.consumer, seat.topic, seat.owner];
      /** Takes the seat from nobody but the owner of that renewal. */
      const take = async (dead: string | null): Promise<boolean> => {
        const rows = await connection.run(
          `INSERT INTO ${n.seats} AS s (consumer, topic, owner, renewed_at, expires_at, ttl_ms, renewals)
           SELECT $1, $2, $3, t, t + $4::double precision * interval '1 millisecond', $4::double precision, 1 FROM clock_timestamp() AS t
           ON CONFLICT (consumer, topic) DO UPDATE SET owner = excluded.owner, renewed_at = excluded.renewed_at, expires_at = excluded.expires_at,
             ttl_ms = excluded.ttl_ms, renewals = s.renewals + 1
           WHERE s.owner = excluded.owner OR ${renewalOf("s")} = $5::text RETURNING 1 AS seated`,
          [...place, ttlMs, dead],
        );
        return rows.length === 1;
      };
      if (await take(null)) return true;
      const [held] = await connection.run(
        `SELECT ${leaseColumns("s")} FROM ${n.seats} s WHERE consumer = $1 AND topic = $2 AND owner <> $3`,
        place,
      );
      if (held === undefined) return take(null);
      const lease = leaseOf(held);
      return !expiry.isLive(JSON.stringify(place.slice(0, 2)), lease) && (await take(lease.renewal));
    },
    async leave(seat) {
      await connection.run(`DELETE FROM ${n.seats} WHERE consumer = $1 AND topic = $2 AND owner = $3`, [
        seat.consumer,
        seat.topic,
        seat.owner,
      ]);
    },
  };
}

const unfinished = ({ id }: InboxKey): WaybillError =>
  new WaybillError(
    "EFFECT_UNFINISHED",
    `an earlier attempt of event ${id} committed before its handler had finished (COMMIT in it): part of its effect may be there`,
  );

/** Through clients of the store's own pool; the handler's handle ends with its transaction. */
export function onOwnClients(connection: Connection, patienceMs: number): Applying<PgClient> {
  // A subscriber that is frozen inside its transaction must not keep its event from the others for ever.
  const limits = `SELECT set_config('lock_timeout', '${patienceMs}', true),
    set_config('idle_in_transaction_session_timeout', '${patienceMs * 10}', true), set_config('tcp_user_timeout', '${patienceMs}', true)`;
  return {
    transaction: (work) =>
      connection.lend((client) =>
        runTransaction(client, { place: connection.place, patienceMs }, async (tx) => {
          await tx.query(limits);
          return lending(tx, work, () => tx.getTransactionStatus?.() !== "I");
        }),
      ),
    query: async (tx, sql, values) => (await tx.query(sql, [...values])).rows,
  };
}
