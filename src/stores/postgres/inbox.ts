import type { Inbox } from "../../contracts/inbox.ts";
import { blamed } from "../../core/blameless.ts";
import type { Clock } from "../../core/clock.ts";
import { createExpiry } from "../kit/expiry.ts";
import { letterColumns, marksEvent, parkedVersion, renewedColumns } from "../kit/letters.ts";
import { onceBy } from "../kit/once.ts";
import { again } from "../kit/pool.ts";
import { createApply } from "./apply.ts";
import type { EventTransactions } from "./applying.ts";
import type { Connection } from "./connection.ts";
import { isConflict } from "./driver.ts";
import { leaseColumns, leaseOf, renewalOf } from "./lease-store.ts";
import type { Names } from "./names.ts";
import { storable } from "./rows.ts";

export function createInbox<Tx>(connection: Connection, n: Names, applying: EventTransactions<Tx>, clock: Clock): Inbox<Tx> {
  const expiry = createExpiry(clock);
  const apply = createApply(connection, n, applying);
  return {
    // A batch that lost a conflict is the caller's business: run again at once, it would meet the same batches.
    once: onceBy((keys, handlerVersion, work, letter) =>
      again(
        () => apply(keys, handlerVersion, work, letter),
        (error) => keys.ids.length === 1 && isConflict(error),
      ).catch((error: unknown) => {
        throw blamed(connection.place, error, isConflict);
      }),
    ),
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
        // NOWAIT: a session that has locked the letter must not make other events wait. The subscriber retries.
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
      /** Takes the seat if it is free, already ours, or still has the renewal `dead`. */
      const take = async (dead: string | null): Promise<boolean> => {
        const rows = await connection.run(
          `INSERT INTO ${n.seats} AS s (consumer, topic, owner, renewed_at, expires_at, ttl_ms, renewals)
           SELECT $1, $2, $3, t, t + $4::double precision * interval '1 millisecond', $4::double precision, 1 FROM clock_timestamp() AS t
           ON CONFLICT (consumer, topic) DO UPDATE SET owner = excluded.owner, renewed_at = excluded.renewed_at, expires_at = excluded.expires_at,
             ttl_ms = excluded.ttl_ms, renewals = s.renewals + 1
           WHERE s.owner IN (excluded.owner, '') OR ${renewalOf("s")} = $5::text RETURNING 1 AS seated`,
          [...place, ttlMs, dead],
        );
        return rows.length === 1;
      };
      if (await take(null)) return true;
      const [held] = await connection.run(
        `SELECT ${leaseColumns("s")} FROM ${n.seats} s WHERE consumer = $1 AND topic = $2 AND owner NOT IN ($3, '')`,
        place,
      );
      if (held === undefined) return take(null);
      const lease = leaseOf(held);
      return !expiry.isLive(JSON.stringify(place.slice(0, 2)), lease) && (await take(lease.renewal));
    },
    async leave(seat) {
      await connection.run(
        `UPDATE ${n.seats} SET owner = '', renewed_at = t, expires_at = t, ttl_ms = 0, renewals = renewals + 1
         FROM clock_timestamp() AS t WHERE consumer = $1 AND topic = $2 AND owner = $3`,
        [seat.consumer, seat.topic, seat.owner],
      );
    },
  };
}
