import type { Applied, Inbox, InboxKey } from "../../contracts/inbox.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { createExpiry } from "../kit/expiry.ts";
import type { Connection, Statements } from "../../drivers/sqlite/connection.ts";
import { lend } from "../../core/lend.ts";
import { letterColumns, marksEvent, parkedVersion, renewedColumns } from "../kit/letters.ts";
import { onceBy } from "../kit/once.ts";
import { inTransaction, isBusy, type SqliteDatabase } from "../../drivers/sqlite/driver.ts";
import { iso, leaseOf } from "./rows.ts";

export function createInbox(connection: Connection, clock: Clock): Inbox<SqliteDatabase> {
  const expiry = createExpiry(clock);
  return {
    once: onceBy(({ consumer, ids }, handlerVersion, work, letter) =>
      connection.write<readonly Applied[]>(async (statements, db) => {
        const dropLetter = (): unknown =>
          letter !== undefined && statements.run("DELETE FROM waybill_letters WHERE seq = ?", [Number(letter)]);
        const redriven = "SELECT 1 AS kept FROM waybill_letters WHERE seq = ? AND redriven_at IS NOT NULL";
        if (letter !== undefined && statements.get(redriven, [Number(letter)]) === undefined) return ["seen"];
        // In place of the mark that the letter left.
        const takeOver = `UPDATE SET processed_at = excluded.processed_at, handler_version = excluded.handler_version, finished = 0 WHERE handler_version = ${parkedVersion}`;
        const mark = (id: string): boolean =>
          statements.run(
            `INSERT INTO inbox (consumer, event_id, processed_at, handler_version, finished) VALUES (?, ?, ?, ?, 0)
             ON CONFLICT DO ${letter === undefined ? "NOTHING" : takeOver}`,
            [consumer, id, iso(clock.now()), handlerVersion],
          ) === 1;
        const before = ids.map((id) => (mark(id) ? "done" : seen(statements, { consumer, id })));
        const fresh = new Set(ids.filter((_, at) => before[at] === "done"));
        if (fresh.size === 0) {
          dropLetter();
          return before;
        }
        const lost = (id: string): WaybillError =>
          new WaybillError("TRANSACTION_LOST", `the transaction of event ${id} ended inside its handler`);
        const finish = (id: string): boolean =>
          statements.run("UPDATE inbox SET finished = 1 WHERE consumer = ? AND event_id = ?", [consumer, id]) === 1;
        // A handler's COMMIT would commit the marks of events whose handlers have not run: each gets its mark when its turn comes.
        let begun: readonly string[] | null = null;
        let lent = lend(db, () => isOpen(db));
        const next = (now: readonly string[]): SqliteDatabase => {
          lent.takeBack();
          if (!inTransaction(db)) throw lost(now[0]!);
          if (begun === null && now.length < fresh.size)
            for (const id of fresh)
              if (!now.includes(id)) statements.run("DELETE FROM inbox WHERE consumer = ? AND event_id = ?", [consumer, id]);
          const missing = begun?.find((id) => !finish(id)) ?? (begun === null ? undefined : now.find((id) => !mark(id)));
          if (missing !== undefined) throw lost(missing);
          begun = now;
          return (lent = lend(db, () => isOpen(db))).handle;
        };
        try {
          await work(lent.handle, fresh, next);
        } catch (cause) {
          // This transaction has the write lock: a handler that meets a lock did not use the handle it was given.
          if (isBusy(cause)) throw new Error("the handler met a lock: it must write through the handle it is given", { cause });
          throw cause;
        } finally {
          lent.takeBack();
        }
        // The handler may have swallowed an error that rolled everything back, or ended the transaction itself. Its later statements
        // were then committed one by one, and ours would be too. A mark that the handler committed is then never finished.
        const missing = inTransaction(db) ? [...fresh].find((id) => !finish(id)) : ids[0];
        if (missing !== undefined) throw lost(missing);
        for (const id of fresh) statements.run("DELETE FROM waybill_attempts WHERE consumer = ? AND event_id = ?", [consumer, id]);
        dropLetter();
        return before;
      }),
    ),
    failed: (key, error) =>
      connection.write((statements) => {
        const row = statements.get(
          `INSERT INTO waybill_attempts (consumer, event_id, attempts, last_error, failed_at) VALUES (?, ?, 1, ?, ?)
           ON CONFLICT DO UPDATE SET attempts = attempts + 1, last_error = excluded.last_error, failed_at = excluded.failed_at
           RETURNING attempts`,
          [key.consumer, key.id, error, iso(clock.now())],
        );
        return Number(row?.["attempts"]);
      }),
    park: (letter) =>
      connection.write((statements) => {
        const kept = letter.again === undefined ? letterColumns(letter) : renewedColumns(letter);
        const values = kept.map(([, value]) => value);
        if (letter.again === undefined)
          statements.run(
            `INSERT INTO waybill_letters (parked_at, ${kept.map(([column]) => column).join(", ")}) VALUES (?${", ?".repeat(kept.length)})
             ON CONFLICT DO NOTHING`,
            [iso(clock.now()), ...values],
          );
        else
          statements.run(
            `UPDATE waybill_letters SET redriven_at = NULL, ${kept.map(([column]) => `${column} = ?`).join(", ")} WHERE seq = ?`,
            [...values, Number(letter.again)],
          );
        if (!marksEvent(letter)) return;
        const key = [letter.consumer, letter.envelope.id];
        statements.run("DELETE FROM waybill_attempts WHERE consumer = ? AND event_id = ?", key);
        statements.run(
          `INSERT INTO inbox (consumer, event_id, processed_at, handler_version, finished) VALUES (?, ?, ?, ${parkedVersion}, 1) ON CONFLICT DO NOTHING`,
          [...key, iso(clock.now())],
        );
      }),
    forget: (before, limit, consumer) =>
      connection.write((statements) => {
        const old = (table: string, at: string): number =>
          statements.run(
            `DELETE FROM ${table} WHERE (consumer, event_id) IN (
               SELECT consumer, event_id FROM ${table} WHERE ${at} < ?1 AND (?2 IS NULL OR consumer = ?2) LIMIT ?3)`,
            [before.toISOString(), consumer ?? null, limit],
          );
        return old("inbox", "processed_at") + old("waybill_attempts", "failed_at");
      }),
    sit: (seat, ttlMs) =>
      connection.write((statements) => {
        const row = statements.get("SELECT owner, expires_at, ttl_ms FROM waybill_seats WHERE consumer = ? AND topic = ?", [
          seat.consumer,
          seat.topic,
        ]);
        const place = JSON.stringify([seat.consumer, seat.topic]);
        if (row !== undefined && !["", seat.owner].includes(String(row["owner"])) && expiry.isLive(place, leaseOf(row, clock)))
          return false;
        statements.run(
          `INSERT INTO waybill_seats (consumer, topic, owner, expires_at, ttl_ms) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at, ttl_ms = excluded.ttl_ms`,
          [seat.consumer, seat.topic, seat.owner, iso(clock.now() + ttlMs), ttlMs],
        );
        return true;
      }, "urgent"),
    leave: (seat) =>
      connection.write((statements) => {
        statements.run("UPDATE waybill_seats SET owner = '', expires_at = ?, ttl_ms = 0 WHERE consumer = ? AND topic = ? AND owner = ?", [
          iso(clock.now()),
          ...[seat.consumer, seat.topic, seat.owner],
        ]);
      }),
  };
}

/** Clients that do not report it are trusted. The end of the transaction is then noticed when the handler has returned. */
function isOpen(db: object): boolean {
  const { inTransaction: inside, isTransaction } = db as { inTransaction?: unknown; isTransaction?: unknown };
  return (inside ?? isTransaction) !== false;
}

/** A mark that is not finished was committed by a statement of the handler. */
function seen(statements: Statements, { consumer, id }: InboxKey): Applied {
  const mark = statements.get("SELECT finished, handler_version FROM inbox WHERE consumer = ? AND event_id = ?", [consumer, id]);
  if (Number(mark?.["finished"]) === 1) return Number(mark?.["handler_version"]) === parkedVersion ? "parked" : "seen";
  throw new WaybillError(
    "EFFECT_UNFINISHED",
    `an earlier attempt of ${consumer} at event ${id} ended its transaction before the handler had finished`,
  );
}
