import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Connection, Statements } from "../../drivers/sqlite/connection.ts";

const maxOffset = Number.MAX_SAFE_INTEGER;
const used = `(SELECT "offset" FROM waybill_broker_messages UNION ALL SELECT "offset" FROM waybill_broker_consumers)`;
const last = `(SELECT coalesce(max("offset"), 0) FROM ${used} WHERE "offset" <= ${maxOffset})`;
const refuse = (event: string): string => `CREATE TRIGGER waybill_broker_messages_offset_${event === "INSERT" ? "inserted" : "updated"}
AFTER ${event} ON waybill_broker_messages WHEN NEW."offset" NOT BETWEEN 1 AND ${maxOffset}
BEGIN
  SELECT RAISE(ABORT, 'waybill: leave the offset out, it is given by the table; one below 1 or above ${maxOffset} cannot be read');
END;`;

/**
 * The broker's tables, one entry per version. A released version is never changed: a change is a new version.
 *
 * waybill_broker_messages is the log: `offset` ascends over all topics and is never used twice, `key` is the aggregate id,
 * `attributes` the CloudEvents attributes and `headers` the user's headers (JSON objects of strings), `data` the payload's
 * bytes, `stored_at` UTC as 2030-01-31T23:59:59.999Z. SQLite has one writer at a time, so that offsets are in commit order
 * and a reader never has to look back.
 *
 * waybill_broker_consumers has, per consumer and topic, the offset up to which everything is acknowledged. `beyond` is a JSON array with
 * the first and the last offset of each later run that is acknowledged too. A consumer becomes known when it first receives. Retention
 * keeps what it has not acknowledged for as long as its row exists: delete the row of a consumer that will never come back.
 *
 * waybill_broker_skipped is no longer written to. It named messages that are not events, before they became letters of the inbox.
 */
export const versions: readonly string[] = [
  `CREATE TABLE waybill_broker_topics (
  topic TEXT NOT NULL PRIMARY KEY,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) WITHOUT ROWID;
CREATE TABLE waybill_broker_messages (
  "offset" INTEGER PRIMARY KEY AUTOINCREMENT,
  topic TEXT NOT NULL,
  "key" TEXT NOT NULL,
  stored_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  attributes TEXT NOT NULL,
  headers TEXT NOT NULL DEFAULT '{}',
  data BLOB NOT NULL
);
CREATE INDEX waybill_broker_messages_by_topic ON waybill_broker_messages (topic, "offset");
CREATE TABLE waybill_broker_consumers (
  consumer TEXT NOT NULL,
  topic TEXT NOT NULL,
  "offset" INTEGER NOT NULL,
  beyond TEXT NOT NULL DEFAULT '[]',
  updated_at TEXT NOT NULL,
  PRIMARY KEY (consumer, topic)
) WITHOUT ROWID;
CREATE INDEX waybill_broker_consumers_by_topic ON waybill_broker_consumers (topic, "offset");
CREATE TABLE waybill_broker_skipped (
  consumer TEXT NOT NULL,
  "offset" INTEGER NOT NULL,
  topic TEXT NOT NULL,
  why TEXT NOT NULL,
  skipped_at TEXT NOT NULL,
  PRIMARY KEY (consumer, "offset")
) WITHOUT ROWID;`,
  // One offset that a number cannot hold silenced its topic: the rows behind it counted as read. Such rows move behind all others.
  `CREATE TABLE waybill_broker_moved AS
  SELECT "offset" AS was, ${last} + row_number() OVER (ORDER BY "offset") AS moved
  FROM waybill_broker_messages WHERE "offset" NOT BETWEEN 1 AND ${maxOffset};
UPDATE waybill_broker_consumers SET beyond = '[]', "offset" = ${last} WHERE "offset" > ${maxOffset};
UPDATE waybill_broker_messages SET "offset" = (SELECT moved FROM waybill_broker_moved WHERE was = "offset")
  WHERE "offset" NOT BETWEEN 1 AND ${maxOffset};
UPDATE sqlite_sequence SET seq = ${last} WHERE name = 'waybill_broker_messages' AND seq > ${maxOffset};
DROP TABLE waybill_broker_moved;
${refuse("INSERT")}
${refuse('UPDATE OF "offset"')}`,
];

const versionTable = `CREATE TABLE IF NOT EXISTS waybill_broker_schema (version INTEGER NOT NULL PRIMARY KEY, applied_at TEXT NOT NULL)`;

/** Creates or upgrades the tables; writes nothing when they are up to date. */
export async function migrate(connection: Connection, path: string, clock: Clock): Promise<void> {
  if ((await connection.read((statements) => versionOf(statements, path))) === versions.length) return;
  await connection.write((statements) => {
    statements.exec(versionTable);
    // Read again: another process may have been quicker.
    for (let version = versionOf(statements, path); version < versions.length; version++) {
      statements.exec(versions[version]!);
      const at = new Date(clock.now()).toISOString();
      statements.run("INSERT INTO waybill_broker_schema (version, applied_at) VALUES (?, ?)", [version + 1, at]);
    }
  });
}

function versionOf(statements: Statements, path: string): number {
  const table = statements.get("SELECT 1 AS found FROM sqlite_master WHERE type = 'table' AND name = 'waybill_broker_schema'");
  if (table === undefined) return 0;
  const version = Number(statements.get("SELECT coalesce(max(version), 0) AS version FROM waybill_broker_schema")?.["version"]);
  if (version > versions.length) {
    throw new WaybillError(
      "SCHEMA_NEWER",
      `${path} has broker tables of version ${version}, and this Waybill knows ${versions.length}: upgrade Waybill in this service`,
    );
  }
  return version;
}
