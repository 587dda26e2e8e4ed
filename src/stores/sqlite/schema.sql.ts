/**
 * The tables of version 1, as plain SQL. Until a version is released, a change edits its text in place, and tables of an earlier text are
 * refused. A released text is never changed: a change is a new version.
 *
 * The text imports nothing, so that no change of the runtime can change it. It uses no function that is newer than SQLite 3.38, because
 * the SQLite libraries of other programs run the triggers too.
 */

/** What every row must be. Both triggers on `outbox` check it, and the first broken rule is the writer's error. */
const carried = `
  SELECT CASE
  WHEN NOT (typeof(NEW.id) = 'text' AND length(CAST(NEW.id AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.id, char(0)) = 0)
    THEN RAISE(ABORT, 'waybill constraint: id must be text of 1 to 255 bytes without NUL')
  WHEN NOT (typeof(NEW.aggregate_type) = 'text' AND length(CAST(NEW.aggregate_type AS BLOB)) BETWEEN 1 AND 255
      AND instr(NEW.aggregate_type, char(0)) = 0)
    THEN RAISE(ABORT, 'waybill constraint: aggregate_type must be text of 1 to 255 bytes without NUL')
  WHEN NOT (typeof(NEW.aggregate_id) = 'text' AND length(CAST(NEW.aggregate_id AS BLOB)) BETWEEN 1 AND 255
      AND instr(NEW.aggregate_id, char(0)) = 0)
    THEN RAISE(ABORT, 'waybill constraint: aggregate_id must be text of 1 to 255 bytes without NUL')
  WHEN NOT (typeof(NEW.event_type) = 'text' AND length(CAST(NEW.event_type AS BLOB)) BETWEEN 1 AND 255
      AND instr(NEW.event_type, char(0)) = 0)
    THEN RAISE(ABORT, 'waybill constraint: event_type must be text of 1 to 255 bytes without NUL')
  WHEN NOT (typeof(NEW.event_version) = 'integer' AND NEW.event_version BETWEEN 1 AND 2147483647)
    THEN RAISE(ABORT, 'waybill constraint: event_version must be a whole number from 1 to 2147483647')
  WHEN NOT ((NEW.payload IS NULL) <> (NEW.payload_bytes IS NULL))
    THEN RAISE(ABORT, 'waybill constraint: an event has either payload or payload_bytes')
  WHEN NOT (typeof(NEW.content_type) = 'text' AND length(CAST(NEW.content_type AS BLOB)) BETWEEN 1 AND 255
      AND instr(NEW.content_type, char(0)) = 0 AND NEW.content_type NOT GLOB '*[^ -~]*')
    THEN RAISE(ABORT, 'waybill constraint: content_type must be 1 to 255 printable ASCII characters')
  -- The length comes first: whoever inserts must not be able to have megabytes of JSON parsed.
  WHEN NOT (NEW.headers = '{}' OR typeof(NEW.headers) = 'text' AND length(CAST(NEW.headers AS BLOB)) <= 16384
      AND instr(NEW.headers, char(0)) = 0 AND CASE WHEN json_valid(NEW.headers) THEN json_type(NEW.headers) = 'object' ELSE 0 END)
    THEN RAISE(ABORT, 'waybill constraint: headers must be a JSON object of 16384 bytes at most')
  WHEN NOT (NEW.idempotency_key IS NULL OR typeof(NEW.idempotency_key) = 'text'
      AND length(CAST(NEW.idempotency_key AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.idempotency_key, char(0)) = 0)
    THEN RAISE(ABORT, 'waybill constraint: idempotency_key must be text of 1 to 255 bytes without NUL')
  WHEN NOT (typeof(NEW.created_at) = 'text' AND NEW.created_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*'
      AND julianday(NEW.created_at) IS NOT NULL)
    THEN RAISE(ABORT, 'waybill constraint: created_at must be a date such as 2026-01-31T23:59:59.000Z')
  WHEN NOT (NEW.available_at IS NULL OR typeof(NEW.available_at) = 'text'
      AND NEW.available_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.available_at) IS NOT NULL)
    THEN RAISE(ABORT, 'waybill constraint: available_at must be a date such as 2026-01-31T23:59:59.000Z')
  WHEN NOT (typeof(NEW.retry_count) = 'integer' AND NEW.retry_count BETWEEN 0 AND 2147483647)
    THEN RAISE(ABORT, 'waybill constraint: retry_count must be a whole number from 0 to 2147483647')
  WHEN NOT ((NEW.next_attempt_at IS NULL OR typeof(NEW.next_attempt_at) = 'text'
      AND NEW.next_attempt_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.next_attempt_at) IS NOT NULL)
      AND (NEW.status <> 'FAILED' OR NEW.next_attempt_at IS NOT NULL))
    THEN RAISE(ABORT, 'waybill constraint: next_attempt_at must be a date, and a FAILED event must have one')
  WHEN NOT ((NEW.published_at IS NULL OR typeof(NEW.published_at) = 'text'
      AND NEW.published_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.published_at) IS NOT NULL)
      AND (NEW.status <> 'PUBLISHED' OR NEW.published_at IS NOT NULL))
    THEN RAISE(ABORT, 'waybill constraint: published_at must be a date, and a PUBLISHED event must have one')
  WHEN NOT (NEW.status IN ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED'))
    THEN RAISE(ABORT, 'waybill constraint: status must be left out')
  -- AUTOINCREMENT continues from the highest seq ever written, and JavaScript cannot distinguish two seqs beyond 2^53. -1: not given.
  WHEN NOT (NEW.seq = -1 OR NEW.seq BETWEEN 1 AND 4503599627370496)
    THEN RAISE(ABORT, 'waybill constraint: seq must be left out')
  END;`;

export const version1 = `
CREATE TABLE waybill_meta (
  version     INTEGER NOT NULL,
  fingerprint TEXT NOT NULL
);

-- The events. Any program may insert: it gives aggregate_type, aggregate_id, event_type and payload, and leaves out what it does not know.
CREATE TABLE outbox (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE DEFAULT (
                    lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'
                    || substr('89AB', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
  aggregate_type  TEXT NOT NULL CHECK (typeof(aggregate_type) = 'text' AND aggregate_type <> ''),
  aggregate_id    TEXT NOT NULL CHECK (typeof(aggregate_id) = 'text' AND aggregate_id <> ''),
  event_type      TEXT NOT NULL CHECK (typeof(event_type) = 'text' AND event_type <> ''),
  event_version   INTEGER NOT NULL DEFAULT 1 CHECK (event_version BETWEEN 1 AND 2147483647),
  payload         TEXT,
  payload_bytes   BLOB,
  content_type    TEXT NOT NULL DEFAULT 'application/json',
  headers         TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(headers)),
  idempotency_key TEXT,
  -- SQLite has no hash function: the relay fills the lane in before its first claim.
  lane            INTEGER CHECK (lane BETWEEN 0 AND 63),
  created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  available_at    TEXT CHECK (available_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9]Z'),
  status          TEXT NOT NULL DEFAULT 'PENDING'
                  CHECK (status IN ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED')),
  retry_count     INTEGER NOT NULL DEFAULT 0,
  next_attempt_at TEXT,
  last_error      TEXT,
  error_code      TEXT,
  error_detail    TEXT,
  published_at    TEXT,
  CHECK ((payload IS NULL) <> (payload_bytes IS NULL))
);
-- Each scan of the relay has an index that holds only the rows it may find.
CREATE INDEX outbox_pending ON outbox (lane, seq) WHERE status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL);
CREATE INDEX outbox_delayed ON outbox (available_at) WHERE status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL;
CREATE INDEX outbox_failed ON outbox (next_attempt_at) WHERE status = 'FAILED';
CREATE INDEX outbox_blocked ON outbox (aggregate_type, aggregate_id, seq) WHERE status = 'BLOCKED';
CREATE INDEX outbox_dead ON outbox (seq) WHERE status = 'DEAD';
CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;
CREATE INDEX outbox_unlaned ON outbox (seq) WHERE (typeof(lane) <> 'integer' OR lane NOT BETWEEN 0 AND 63);
CREATE INDEX outbox_discarded ON outbox (created_at) WHERE status = 'DISCARDED';

-- The idempotency keys that were used. They outlive their events, which retention deletes earlier.
CREATE TABLE waybill_keys (
  key        TEXT PRIMARY KEY,
  event_id   TEXT NOT NULL,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) WITHOUT ROWID;
CREATE INDEX waybill_keys_age ON waybill_keys (created_at);
-- A used key adds nothing, whoever inserts.
CREATE TRIGGER outbox_key BEFORE INSERT ON outbox WHEN NEW.idempotency_key IS NOT NULL
BEGIN
  SELECT RAISE(IGNORE) WHERE EXISTS (SELECT 1 FROM waybill_keys WHERE key = NEW.idempotency_key);
  INSERT INTO waybill_keys (key, event_id) VALUES (NEW.idempotency_key, NEW.id);
END;
-- Refuses rows that cannot be carried. INSERT OR IGNORE silently skips a row that violates a CHECK, but still fails on RAISE(ABORT).
CREATE TRIGGER outbox_carried BEFORE INSERT ON outbox
BEGIN
  SELECT RAISE(ABORT, 'waybill constraint: lane must be left out') WHERE NEW.lane IS NOT NULL;${carried}
END;
CREATE TRIGGER outbox_carried_still BEFORE UPDATE OF
  id, aggregate_type, aggregate_id, event_type, event_version, content_type, headers, idempotency_key, created_at, available_at
ON outbox
BEGIN${carried}
END;

-- The relays, their leases on lanes, and the windows that they have claimed.
CREATE TABLE waybill_relays (
  relay      TEXT PRIMARY KEY,
  started_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  ttl_ms     REAL NOT NULL,
  window     INTEGER NOT NULL,
  strategy   TEXT
) WITHOUT ROWID;
CREATE TABLE waybill_lanes (
  lane  INTEGER PRIMARY KEY,
  owner TEXT,
  epoch INTEGER NOT NULL DEFAULT 0
);
WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 63)
INSERT INTO waybill_lanes (lane) SELECT lane FROM n;
CREATE TABLE waybill_windows (
  window     TEXT NOT NULL,
  lane       INTEGER NOT NULL,
  relay      TEXT NOT NULL,
  epoch      INTEGER NOT NULL,
  width      INTEGER NOT NULL,
  seqs       TEXT NOT NULL,
  claimed_at TEXT NOT NULL,
  PRIMARY KEY (window, lane)
) WITHOUT ROWID;
-- The events of windows whose relay died with them: any of them may be the cause.
CREATE TABLE waybill_suspects (
  seq            INTEGER PRIMARY KEY,
  lane           INTEGER NOT NULL,
  aggregate_type TEXT NOT NULL,
  aggregate_id   TEXT NOT NULL,
  width          INTEGER NOT NULL,
  deaths         INTEGER NOT NULL
);
CREATE INDEX waybill_suspects_aggregate ON waybill_suspects (aggregate_type, aggregate_id);

-- Why an aggregate or a destination waits.
CREATE TABLE waybill_holds (
  aggregate_type TEXT NOT NULL,
  aggregate_id   TEXT NOT NULL,
  lane           INTEGER NOT NULL,
  cause_seq      INTEGER NOT NULL,
  destination    TEXT,
  why            TEXT NOT NULL,
  since          TEXT NOT NULL,
  free_to        INTEGER,
  PRIMARY KEY (aggregate_type, aggregate_id)
) WITHOUT ROWID;
CREATE INDEX waybill_holds_cause ON waybill_holds (cause_seq);
CREATE INDEX waybill_holds_releasing ON waybill_holds (lane) WHERE free_to IS NOT NULL;
CREATE INDEX waybill_holds_destination ON waybill_holds (destination, since) WHERE destination IS NOT NULL;
CREATE TABLE waybill_destinations (
  destination TEXT NOT NULL,
  lane        INTEGER NOT NULL,
  why         TEXT NOT NULL,
  since       TEXT NOT NULL,
  PRIMARY KEY (destination, lane)
) WITHOUT ROWID;

-- What operators did.
CREATE TABLE waybill_audit (
  at     TEXT NOT NULL,
  who    TEXT NOT NULL,
  action TEXT NOT NULL,
  events INTEGER NOT NULL,
  detail TEXT NOT NULL
);

-- The subscribers' side: which event a consumer has had, its failed attempts, its seats and its letters.
CREATE TABLE inbox (
  consumer        TEXT NOT NULL,
  event_id        TEXT NOT NULL,
  processed_at    TEXT NOT NULL,
  handler_version INTEGER NOT NULL,
  finished        INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (consumer, event_id)
) WITHOUT ROWID;
CREATE INDEX inbox_age ON inbox (processed_at);
CREATE TABLE waybill_attempts (
  consumer   TEXT NOT NULL,
  event_id   TEXT NOT NULL,
  attempts   INTEGER NOT NULL,
  last_error TEXT NOT NULL,
  failed_at  TEXT NOT NULL,
  PRIMARY KEY (consumer, event_id)
) WITHOUT ROWID;
CREATE INDEX waybill_attempts_age ON waybill_attempts (failed_at);
CREATE TABLE waybill_seats (
  consumer   TEXT NOT NULL,
  topic      TEXT NOT NULL,
  owner      TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  ttl_ms     REAL NOT NULL,
  PRIMARY KEY (consumer, topic)
) WITHOUT ROWID;
CREATE TABLE waybill_letters (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  parked_at       TEXT NOT NULL,
  redriven_at     TEXT,
  consumer        TEXT NOT NULL,
  topic           TEXT NOT NULL,
  id              TEXT NOT NULL,
  digest          TEXT NOT NULL,
  aggregate_type  TEXT NOT NULL,
  aggregate_id    TEXT NOT NULL,
  event_type      TEXT NOT NULL,
  envelope        TEXT NOT NULL,
  data            BLOB NOT NULL,
  raw             BLOB,
  whole           INTEGER NOT NULL DEFAULT 1,
  error_code      TEXT NOT NULL,
  error           TEXT NOT NULL,
  error_detail    TEXT NOT NULL DEFAULT '',
  attempts        INTEGER NOT NULL,
  handler_version INTEGER NOT NULL,
  UNIQUE (consumer, topic, id, digest)
);
CREATE INDEX waybill_letters_redriven ON waybill_letters (consumer, topic, seq) WHERE redriven_at IS NOT NULL;

-- What a person at a SQL prompt reads: the derived state, who publishes it, why it waits.
CREATE VIEW outbox_events AS
SELECT o.*,
       CASE WHEN w.relay IS NOT NULL AND o.status IN ('PENDING', 'FAILED') THEN 'PUBLISHING' ELSE o.status END AS state,
       o.status = 'PUBLISHED' AS published,
       w.relay AS owner,
       CASE WHEN o.status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') THEN h.why END AS hold
FROM outbox o
LEFT JOIN waybill_holds h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
LEFT JOIN (
  SELECT j.value AS seq, w.relay
  FROM waybill_windows w
  JOIN waybill_lanes l ON l.lane = w.lane AND l.owner = w.relay AND l.epoch = w.epoch
  JOIN waybill_relays r ON r.relay = w.relay AND r.expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  JOIN json_each(w.seqs) j
) w ON w.seq = o.seq;
`;
