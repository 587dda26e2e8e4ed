import { createConnection, type Statements } from "../drivers/sqlite/connection.ts";
import { batch, batchesInFlight, effectTables, poisonHeader, shopFiles, subscriberNames, topic, type SubscriberName } from "./shop.ts";

/** What the tables and the log say, each number by SQL. */
export interface Summary {
  readonly ordersCommitted: number;
  readonly rolledBack: number;
  /** Events of committed transactions. */
  readonly events: number;
  /** How many of them are in the broker's log. */
  readonly published: number;
  readonly effects: Readonly<Record<SubscriberName, number>>;
  /** Deliveries of an event to a subscriber that had applied it already. */
  readonly duplicateDeliveries: number;
  /** Copies in the log beyond each event's first. */
  readonly duplicatesInLog: number;
  /** How many copies the faults may have caused: at most one window each. */
  readonly duplicatesAllowed: number;
  /** Effects beyond each event's first. */
  readonly doubled: number;
  /** Committed, and neither in the log nor waiting in the outbox; or acknowledged by a subscriber and not applied. */
  readonly lost: number;
  /** Still under way: waiting in the outbox, or in the log and not yet acknowledged. */
  readonly undelivered: number;
  /** In the log or applied, though its transaction was never committed. */
  readonly invented: number;
  /** First copies in the log, and first effects, that came before an earlier change of their order. */
  readonly outOfOrder: number;
  readonly dead: number;
  /** Behind a dead event of their order. */
  readonly blocked: number;
  readonly faults: Readonly<Record<string, number>>;
}

export async function summarise(folder: string): Promise<Summary> {
  const files = shopFiles(folder);
  const connection = createConnection({ path: files.orders, lockTimeoutMs: 10_000 });
  try {
    return await connection.read((statements) => {
      for (const name of ["broker", ...subscriberNames] as const) attach(statements, name, files[name]);
      for (const [name, select] of Object.entries(drafts)) {
        statements.exec(`DROP TABLE IF EXISTS temp.${name}; CREATE TEMP TABLE ${name} AS ${select}`);
      }
      statements.exec(indexes);
      return read(statements);
    });
  } finally {
    await connection.close();
  }
}

function attach(statements: Statements, name: string, path: string): void {
  if (statements.get("SELECT 1 AS found FROM pragma_database_list WHERE name = ?", [name]) !== undefined) return;
  statements.exec(`ATTACH '${path.replaceAll("'", "''")}' AS ${name}`);
}

const perSubscriber = (select: (name: SubscriberName) => string): string => subscriberNames.map(select).join(" UNION ALL ");
const poisoned = `SELECT aggregate_id FROM outbox WHERE json_extract(headers, '$."${poisonHeader}"') IS NOT NULL`;

/** The path in small tables: copies in the log, events that wait, effects of each subscriber, and each subscriber's offset. */
const drafts: Readonly<Record<string, string>> = {
  copies: `SELECT "offset" AS at, json_extract(CAST(attributes AS TEXT), '$.id') AS event_id
           FROM broker.waybill_broker_messages WHERE topic = '${topic}'`,
  logged: "SELECT event_id, min(at) AS at FROM copies GROUP BY event_id",
  waiting: `SELECT id AS event_id, status, status IN ('DEAD', 'BLOCKED') AND aggregate_id IN (${poisoned}) AS planted
            FROM outbox WHERE status <> 'PUBLISHED'`,
  applied: perSubscriber((name) => `SELECT '${name}' AS place, n AS at, event_id FROM ${name}.${effectTables[name]}`),
  standing: perSubscriber(
    (name) => `SELECT '${name}' AS place, coalesce((SELECT "offset" FROM broker.waybill_broker_consumers
               WHERE consumer = '${name}' AND topic = '${topic}'), 0) AS at`,
  ),
  seen: `SELECT 'log' AS place, event_id, at FROM logged
         UNION ALL SELECT place, event_id, min(at) FROM applied GROUP BY place, event_id`,
};

const indexes = `CREATE INDEX temp.logged_event ON logged (event_id);
CREATE INDEX temp.waiting_event ON waiting (event_id);
CREATE INDEX temp.seen_event ON seen (event_id, place);`;

const isLogged = "EXISTS (SELECT 1 FROM logged l WHERE l.event_id = h.event_id)";
const waits = "EXISTS (SELECT 1 FROM waiting w WHERE w.event_id = h.event_id)";
/** In the log without an effect at some subscriber, which is past the event (">=") or not yet ("<"). */
const unapplied = (past: ">=" | "<"): string =>
  `EXISTS (SELECT 1 FROM logged l JOIN standing s ON s.at ${past} l.at WHERE l.event_id = h.event_id
           AND NOT EXISTS (SELECT 1 FROM seen e WHERE e.event_id = h.event_id AND e.place = s.place))`;

const counts = {
  ordersCommitted: "SELECT count(*) FROM orders",
  rolledBack: "SELECT count(*) FROM rollbacks",
  events: "SELECT count(*) FROM history",
  published: `SELECT count(*) FROM history h WHERE ${isLogged}`,
  redelivered: `SELECT sum(n) FROM (${perSubscriber((name) => `SELECT count(*) AS n FROM ${name}.redeliveries`)})`,
  duplicatesInLog: "SELECT (SELECT count(*) FROM copies) - (SELECT count(*) FROM logged)",
  doubled: "SELECT (SELECT count(*) FROM applied) - (SELECT count(*) FROM seen WHERE place <> 'log')",
  lost: `SELECT count(*) FROM history h WHERE (NOT ${isLogged} AND NOT ${waits}) OR ${unapplied(">=")}`,
  undelivered: `SELECT count(*) FROM history h
    WHERE EXISTS (SELECT 1 FROM waiting w WHERE w.event_id = h.event_id AND NOT w.planted) OR ${unapplied("<")}`,
  invented: "SELECT count(DISTINCT event_id) FROM seen WHERE event_id NOT IN (SELECT event_id FROM history)",
  inverted: `SELECT count(*) FROM (
    SELECT h.version, max(h.version) OVER (PARTITION BY s.place, h.order_id ORDER BY s.at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
    FROM seen s JOIN history h ON h.event_id = s.event_id) WHERE version < highest`,
  // The followers of an event that failed or died must wait.
  overtaken: `SELECT count(*) FROM history h WHERE ${isLogged} AND EXISTS (
    SELECT 1 FROM history e JOIN waiting w ON w.event_id = e.event_id
    WHERE e.order_id = h.order_id AND e.version < h.version AND e.event_id NOT IN (SELECT event_id FROM logged))`,
  dead: "SELECT count(*) FROM outbox WHERE status = 'DEAD'",
  blocked: `SELECT count(*) FROM outbox b WHERE status = 'BLOCKED' AND EXISTS (
    SELECT 1 FROM outbox d WHERE d.status = 'DEAD' AND d.aggregate_type = b.aggregate_type AND d.aggregate_id = b.aggregate_id)`,
};

/** Faults after which a relay cannot know whether its window was stored. */
const doubling = ["relay killed", "broker stopped", "destination opened", "lanes lost", "run interrupted"];

function read(statements: Statements): Summary {
  const count = (sql: string): number => Number(Object.values(statements.get(sql) ?? {})[0] ?? 0);
  const { redelivered, inverted, overtaken, ...plain } = Object.fromEntries(
    Object.entries(counts).map(([name, sql]) => [name, count(sql)]),
  ) as Record<keyof typeof counts, number>;
  const faults = Object.fromEntries(
    statements.all("SELECT kind, count(*) AS n FROM faults GROUP BY kind ORDER BY kind").map(({ kind, n }) => [String(kind), Number(n)]),
  );
  const effects = Object.fromEntries(subscriberNames.map((name) => [name, count(`SELECT count(*) FROM ${name}.${effectTables[name]}`)]));
  const windows = doubling.reduce((sum, kind) => sum + (faults[kind] ?? 0), 0);
  const { ordersCommitted, rolledBack, events, published, duplicatesInLog, doubled, lost, undelivered, invented, dead, blocked } = plain;
  return {
    ...{ ordersCommitted, rolledBack, events, published },
    effects: effects as Record<SubscriberName, number>,
    duplicateDeliveries: redelivered + doubled,
    duplicatesInLog,
    duplicatesAllowed: windows * batch * batchesInFlight,
    ...{ doubled, lost, undelivered, invented },
    outOfOrder: inverted + overtaken,
    ...{ dead, blocked, faults },
  };
}
