import type { SqliteDatabase } from "../drivers/sqlite/driver.ts";
import type { SubscriberName } from "./shop.ts";

/**
 * The order service's own tables. `history` has a row for every committed change, written with the order itself. It, and not the outbox,
 * says what the broker and the subscribers should have seen.
 */
export const orderTables = `
CREATE TABLE IF NOT EXISTS orders (
  id          TEXT PRIMARY KEY,
  customer_id TEXT NOT NULL,
  total       INTEGER NOT NULL,
  items       TEXT NOT NULL,
  status      TEXT NOT NULL,
  version     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS history (
  event_id   TEXT PRIMARY KEY,
  order_id   TEXT NOT NULL,
  version    INTEGER NOT NULL,
  event_type TEXT NOT NULL,
  UNIQUE (order_id, version)
) WITHOUT ROWID;
-- Written after the rollback, in a transaction of its own.
CREATE TABLE IF NOT EXISTS rollbacks (event_id TEXT PRIMARY KEY, order_id TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS faults (at TEXT NOT NULL, kind TEXT NOT NULL, what TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (started_at TEXT NOT NULL, ended_at TEXT, mode TEXT NOT NULL);
`;

/** No key on `event_id`: an event that is applied twice must show. `n` is the order in which they were applied. */
const effect = "n INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL, order_id TEXT NOT NULL, version INTEGER NOT NULL";
const redeliveries = "CREATE TABLE IF NOT EXISTS redeliveries (event_id TEXT NOT NULL);";

export const subscriberTables: Readonly<Record<SubscriberName, string>> = {
  inventory: `${redeliveries}
CREATE TABLE IF NOT EXISTS reserved (order_id TEXT PRIMARY KEY, units INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS movements (${effect}, units INTEGER NOT NULL);`,
  payment: `${redeliveries}
CREATE TABLE IF NOT EXISTS charged (order_id TEXT PRIMARY KEY, amount INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS charges (${effect}, amount INTEGER NOT NULL);`,
  notification: `${redeliveries}
CREATE TABLE IF NOT EXISTS mails (${effect}, text TEXT NOT NULL);`,
};

interface Applied {
  readonly id: string;
  readonly type: string;
  readonly order_id: string;
  readonly version: number;
  readonly total: number;
  readonly units: number;
}

const mailTexts = new Map([
  ["OrderPlaced", "thank you for your order"],
  ["OrderCancelled", "your order is cancelled"],
]);

/** One event's effect in its subscriber's tables; the caller's transaction is around it. */
export const effects: Readonly<Record<SubscriberName, (db: SqliteDatabase, event: Applied) => void>> = {
  inventory(db, event) {
    const units = event.type === "OrderCancelled" ? 0 : event.units;
    db.prepare(
      `INSERT INTO movements (event_id, order_id, version, units)
       VALUES (?, ?, ?, ? - coalesce((SELECT units FROM reserved WHERE order_id = ?), 0))`,
    ).run(event.id, event.order_id, event.version, units, event.order_id);
    db.prepare("INSERT INTO reserved VALUES (?, ?) ON CONFLICT DO UPDATE SET units = excluded.units").run(event.order_id, units);
  },
  payment(db, event) {
    const amount = event.type === "OrderCancelled" ? 0 : event.total;
    db.prepare(
      `INSERT INTO charges (event_id, order_id, version, amount)
       VALUES (?, ?, ?, ? - coalesce((SELECT amount FROM charged WHERE order_id = ?), 0))`,
    ).run(event.id, event.order_id, event.version, amount, event.order_id);
    db.prepare("INSERT INTO charged VALUES (?, ?) ON CONFLICT DO UPDATE SET amount = excluded.amount").run(event.order_id, amount);
  },
  notification(db, event) {
    const text = mailTexts.get(event.type) ?? "your order has changed";
    db.prepare("INSERT INTO mails (event_id, order_id, version, text) VALUES (?, ?, ?, ?)").run(
      event.id,
      event.order_id,
      event.version,
      text,
    );
  },
};
