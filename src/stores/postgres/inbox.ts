import type { Inbox, InboxKey } from "../../contracts/inbox.ts";
import { isWaybillError, WaybillError } from "../../core/errors.ts";
import { lending } from "../../core/lend.ts";
import type { Connection } from "./connection.ts";
import { explain, isConflict, type PgClient } from "./driver.ts";
import type { Names } from "./names.ts";
import { storable } from "./rows.ts";
import { runTransaction } from "./transactor.ts";

/** How a transaction for one event begins, and how statements run in it. */
export interface Applying<Tx> {
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  query(tx: Tx, sql: string, values: readonly unknown[]): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

const attempts = 5;

export function createInbox<Tx>(connection: Connection, n: Names, applying: Applying<Tx>): Inbox<Tx> {
  const query: Applying<Tx>["query"] = (tx, sql, values) =>
    applying.query(tx, sql, values).catch((error: unknown) => {
      throw explain(error, connection.place);
    });

  const apply = (key: InboxKey, handlerVersion: number, work: (tx: Tx) => void | Promise<void>): Promise<"done" | "seen"> =>
    applying.transaction(async (tx) => {
      const marked = await query(
        tx,
        `INSERT INTO ${n.inbox} (consumer, event_id, processed_at, handler_version) VALUES ($1, $2, clock_timestamp(), $3)
         ON CONFLICT DO NOTHING RETURNING 1 AS marked`,
        [key.consumer, key.id, handlerVersion],
      );
      if (marked.length === 0) return "seen";
      await work(tx);
      // The handler may have swallowed a failure that rolled everything back, or ended the transaction itself:
      // what it did after that would stand alone. The mark is still there only if nothing of the kind happened.
      const kept = await query(
        tx,
        `WITH counts AS (DELETE FROM ${n.attempts} WHERE consumer = $1 AND event_id = $2)
         UPDATE ${n.inbox} SET processed_at = clock_timestamp() WHERE consumer = $1 AND event_id = $2 RETURNING 1 AS kept`,
        [key.consumer, key.id],
      ).catch((error: unknown) => {
        if (isWaybillError(error, "NO_TRANSACTION")) return []; // the library noticed first
        throw error;
      });
      if (kept.length !== 1) throw new WaybillError("TRANSACTION_LOST", `the transaction of event ${key.id} ended inside its handler`);
      return "done";
    });

  return {
    async once(key, handlerVersion, work) {
      for (let attempt = 1; ; attempt++) {
        try {
          return await apply(key, handlerVersion, work);
        } catch (error) {
          if (!isConflict(error) || attempt === attempts) throw error;
        }
      }
    },
    async failed(key, error) {
      const [row] = await connection.run(
        `INSERT INTO ${n.attempts} AS a (consumer, event_id, attempts, last_error, failed_at) VALUES ($1, $2, 1, $3, clock_timestamp())
         ON CONFLICT (consumer, event_id) DO UPDATE SET attempts = a.attempts + 1, last_error = excluded.last_error, failed_at = excluded.failed_at
         RETURNING attempts`,
        [key.consumer, key.id, storable(error)],
      );
      return Number(row!["attempts"]);
    },
    async forget(before) {
      const [row] = await connection.run(
        `WITH gone AS (DELETE FROM ${n.inbox} WHERE processed_at < $1::timestamptz RETURNING 1),
              counts AS (DELETE FROM ${n.attempts} WHERE failed_at < $1::timestamptz)
         SELECT count(*) AS n FROM gone`,
        [before.toISOString()],
      );
      return Number(row!["n"]);
    },
    async sit(seat, ttlMs) {
      const rows = await connection.run(
        `INSERT INTO ${n.seats} AS s (consumer, topic, owner, expires_at)
         VALUES ($1, $2, $3, clock_timestamp() + $4::double precision * interval '1 millisecond')
         ON CONFLICT (consumer, topic) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
         WHERE s.owner = excluded.owner OR s.expires_at <= clock_timestamp() RETURNING 1 AS seated`,
        [seat.consumer, seat.topic, seat.owner, ttlMs],
      );
      return rows.length === 1;
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

/** Through clients of the store's own pool; the handler's handle ends with its transaction. */
export function onOwnClients(connection: Connection, patienceMs: number): Applying<PgClient> {
  // A subscriber that is frozen inside its transaction must not keep its event from the others for ever.
  const limits = `SELECT set_config('lock_timeout', '${patienceMs}', true),
    set_config('idle_in_transaction_session_timeout', '${patienceMs * 10}', true), set_config('tcp_user_timeout', '${patienceMs}', true)`;
  return {
    transaction: (work) =>
      connection.borrow((client) =>
        runTransaction(client, { place: connection.place, patienceMs }, async (tx) => {
          await tx.query(limits);
          return lending(tx, work);
        }),
      ),
    query: async (tx, sql, values) => (await tx.query(sql, [...values])).rows,
  };
}
