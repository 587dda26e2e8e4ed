import type { Status } from "../contracts/operator.ts";
import type { Clock } from "../core/clock.ts";
import { createConnection } from "../drivers/sqlite/connection.ts";
import { sqlite } from "../stores/sqlite/index.ts";
import { shopFiles, subscriberNames, topic, type SubscriberName } from "./shop.ts";

/** The shop at a moment, from its tables. */
export interface Glance {
  readonly status: Status;
  readonly orders: number;
  readonly rolledBack: number;
  readonly events: number;
  /** Messages in the broker's log, copies too. */
  readonly logged: number;
  /** Messages that each subscriber has still to acknowledge. */
  readonly behind: Readonly<Record<SubscriberName, number>>;
}

export interface Eye extends AsyncDisposable {
  look(): Promise<Glance>;
  /** Has everything that can be delivered been delivered, and acknowledged by all subscribers? */
  delivered(): Promise<boolean>;
  /** Records a fault, for the summary. */
  record(kind: string, what: string): Promise<void>;
}

export function createEye(folder: string, clock: Clock): Eye {
  const files = shopFiles(folder);
  const store = sqlite({ path: files.orders });
  const orders = createConnection({ path: files.orders, lockTimeoutMs: 10_000 });
  const broker = createConnection({ path: files.broker, lockTimeoutMs: 10_000 });
  const numbers = (connection: typeof orders, sql: string): Promise<Readonly<Record<string, number>>> =>
    connection.read((statements) =>
      Object.fromEntries(Object.entries(statements.get(sql) ?? {}).map(([name, value]) => [name, Number(value)])),
    );
  const behind = async (): Promise<Record<SubscriberName, number>> => (await numbers(broker, behindSql)) as Record<SubscriberName, number>;

  return {
    async look() {
      const [status, counts, log, waiting] = await Promise.all([
        store.operator.status(),
        numbers(orders, countsSql),
        numbers(broker, `SELECT count(*) AS logged FROM waybill_broker_messages WHERE topic = '${topic}'`),
        behind(),
      ]);
      const { orders: placed = 0, rolledBack = 0, events = 0 } = counts;
      return { status, orders: placed, rolledBack, events, logged: log["logged"] ?? 0, behind: waiting };
    },
    async delivered() {
      if ((await numbers(orders, openSql))["open"] !== 0) return false;
      return Object.values(await behind()).every((n) => n === 0);
    },
    async record(kind, what) {
      const at = new Date(clock.now()).toISOString();
      await orders.write((statements) => statements.run("INSERT INTO faults (at, kind, what) VALUES (?, ?, ?)", [at, kind, what]));
    },
    async [Symbol.asyncDispose]() {
      await store[Symbol.asyncDispose]();
      await orders.close();
      await broker.close();
    },
  };
}

const countsSql = `SELECT (SELECT count(*) FROM orders) AS orders, (SELECT count(*) FROM rollbacks) AS rolledBack,
  (SELECT count(*) FROM history) AS events`;

// Events that are BLOCKED behind a DEAD one wait for an operator. No other event may be open. Each part has an index of its own.
const openSql = `SELECT EXISTS (SELECT 1 FROM outbox WHERE status = 'PENDING' AND available_at IS NULL)
  OR EXISTS (SELECT 1 FROM outbox WHERE status = 'FAILED')
  OR EXISTS (SELECT 1 FROM outbox b WHERE status = 'BLOCKED' AND NOT EXISTS (
    SELECT 1 FROM outbox d WHERE d.status = 'DEAD' AND d.aggregate_type = b.aggregate_type AND d.aggregate_id = b.aggregate_id)) AS open`;

const behindSql = `SELECT ${subscriberNames
  .map(
    (name) => `(SELECT count(*) FROM waybill_broker_messages WHERE topic = '${topic}' AND "offset" > coalesce(
    (SELECT "offset" FROM waybill_broker_consumers WHERE consumer = '${name}' AND topic = '${topic}'), 0)) AS ${name}`,
  )
  .join(", ")}`;
