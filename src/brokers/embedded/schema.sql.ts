/**
 * The broker's tables of version 1, as plain SQL. Until a version is released, a change edits its text in place, and tables of an earlier
 * text are refused. A released text is never changed: a change is a new version. The text imports nothing, so that no change of the
 * runtime can change it.
 */
export const version1 = `
CREATE TABLE waybill_broker_schema (
  version     INTEGER NOT NULL PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  applied_at  TEXT NOT NULL
);
CREATE TABLE waybill_broker_topics (
  topic      TEXT NOT NULL PRIMARY KEY,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) WITHOUT ROWID;

-- The log. The offset ascends over all topics and is never used twice. The key is the aggregate id, the attributes are CloudEvents
-- attributes, the headers the user's (both JSON objects of strings), the data the payload's bytes. SQLite has one writer at a time, so
-- that offsets are in commit order and a reader never has to look back.
CREATE TABLE waybill_broker_messages (
  "offset"   INTEGER PRIMARY KEY AUTOINCREMENT,
  topic      TEXT NOT NULL,
  "key"      TEXT NOT NULL,
  stored_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  attributes TEXT NOT NULL,
  headers    TEXT NOT NULL DEFAULT '{}',
  data       BLOB NOT NULL
);
CREATE INDEX waybill_broker_messages_by_topic ON waybill_broker_messages (topic, "offset");
-- One offset that a JavaScript number cannot hold would silence its topic: the rows behind it would count as read.
CREATE TRIGGER waybill_broker_messages_offset_inserted
AFTER INSERT ON waybill_broker_messages WHEN NEW."offset" NOT BETWEEN 1 AND 9007199254740991
BEGIN
  SELECT RAISE(ABORT, 'waybill: leave the offset out, it is given by the table; one below 1 or above 9007199254740991 cannot be read');
END;
CREATE TRIGGER waybill_broker_messages_offset_updated
AFTER UPDATE OF "offset" ON waybill_broker_messages WHEN NEW."offset" NOT BETWEEN 1 AND 9007199254740991
BEGIN
  SELECT RAISE(ABORT, 'waybill: leave the offset out, it is given by the table; one below 1 or above 9007199254740991 cannot be read');
END;

-- Per consumer and topic, the offset up to which everything is acknowledged. beyond is a JSON array with the first and the last offset of
-- each later run that is acknowledged too. A consumer becomes known when it first receives. Retention keeps what it has not acknowledged
-- for as long as its row exists: delete the row of a consumer that will never come back.
CREATE TABLE waybill_broker_consumers (
  consumer   TEXT NOT NULL,
  topic      TEXT NOT NULL,
  "offset"   INTEGER NOT NULL,
  beyond     TEXT NOT NULL DEFAULT '[]',
  updated_at TEXT NOT NULL,
  PRIMARY KEY (consumer, topic)
) WITHOUT ROWID;
CREATE INDEX waybill_broker_consumers_by_topic ON waybill_broker_consumers (topic, "offset");
`;
