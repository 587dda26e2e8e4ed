import type { Inbox } from "../../contracts/inbox.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { createExpiry } from "../../core/expiry.ts";
import type { Connection } from "../../sqlite/connection.ts";
import { isBusy, type SqliteDatabase } from "../../sqlite/driver.ts";
import { lend } from "./lend.ts";
import { iso, leaseOf } from "./rows.ts";

export function createInbox(connection: Connection, clock: Clock): Inbox<SqliteDatabase> {
  const expiry = createExpiry(clock);
  return {
    once: (key, handlerVersion, work) =>
      connection.write(async (statements, db) => {
        const marked = statements.run(
          "INSERT INTO inbox (consumer, event_id, processed_at, handler_version) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
          key.consumer,
          key.id,
          iso(clock.now()),
          handlerVersion,
        );
        if (marked === 0) return "seen";
        const lent = lend(db);
        try {
          await work(lent.handle);
        } catch (cause) {
          // This transaction has the lock: a handler that meets one has gone past the handle it was given.
          if (isBusy(cause)) throw new Error("the handler met a lock: it must write through the handle it is given", { cause });
          throw cause;
        } finally {
          lent.takeBack();
        }
        // The handler may have swallowed a failure that rolled everything back, or ended the transaction itself:
        // what it did after that would stand alone. The mark is still there only if nothing of the kind happened.
        const kept = statements.run(
          "UPDATE inbox SET processed_at = ? WHERE consumer = ? AND event_id = ?",
          iso(clock.now()),
          key.consumer,
          key.id,
        );
        if (kept !== 1) throw new WaybillError("TRANSACTION_LOST", `the transaction of event ${key.id} ended inside its handler`);
        statements.run("DELETE FROM waybill_attempts WHERE consumer = ? AND event_id = ?", key.consumer, key.id);
        return "done";
      }),
    failed: (key, error) =>
      connection.write((statements) => {
        const row = statements.get(
          `INSERT INTO waybill_attempts (consumer, event_id, attempts, last_error, failed_at) VALUES (?, ?, 1, ?, ?)
           ON CONFLICT DO UPDATE SET attempts = attempts + 1, last_error = excluded.last_error, failed_at = excluded.failed_at
           RETURNING attempts`,
          key.consumer,
          key.id,
          error,
          iso(clock.now()),
        );
        return Number(row?.["attempts"]);
      }),
    forget: (before) =>
      connection.write((statements) => {
        statements.run("DELETE FROM waybill_attempts WHERE failed_at < ?", before.toISOString());
        return statements.run("DELETE FROM inbox WHERE processed_at < ?", before.toISOString());
      }),
    sit: (seat, ttlMs) =>
      connection.write((statements) => {
        const row = statements.get(
          "SELECT owner, expires_at, ttl_ms FROM waybill_seats WHERE consumer = ? AND topic = ?",
          seat.consumer,
          seat.topic,
        );
        const place = JSON.stringify([seat.consumer, seat.topic]);
        if (row !== undefined && row["owner"] !== seat.owner && expiry.isLive(place, leaseOf(row, clock))) return false;
        statements.run(
          `INSERT INTO waybill_seats (consumer, topic, owner, expires_at, ttl_ms) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at, ttl_ms = excluded.ttl_ms`,
          seat.consumer,
          seat.topic,
          seat.owner,
          iso(clock.now() + ttlMs),
          ttlMs,
        );
        return true;
      }),
    leave: (seat) =>
      connection.write((statements) => {
        statements.run("DELETE FROM waybill_seats WHERE consumer = ? AND topic = ? AND owner = ?", seat.consumer, seat.topic, seat.owner);
      }),
  };
}
