BEGIN IMMEDIATE;
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
  lane            INTEGER CHECK (lane BETWEEN 0 AND 63),
  created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  available_at    TEXT CHECK (available_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9]Z'),
  status          TEXT NOT NULL DEFAULT 'PENDING'
                  CHECK (status IN ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED')),
  retry_count     INTEGER NOT NULL DEFAULT 0,
  next_attempt_at TEXT,
  last_error      TEXT,
  published_at    TEXT,
  CHECK ((payload IS NULL) <> (payload_bytes IS NULL))
);
-- Each scan of the relay has an index that holds only the rows it may find.
CREATE INDEX outbox_unlaned ON outbox (seq) WHERE lane IS NULL;
CREATE INDEX outbox_pending ON outbox (lane, seq) WHERE status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL);
CREATE INDEX outbox_delayed ON outbox (available_at) WHERE status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL;
CREATE INDEX outbox_failed ON outbox (next_attempt_at) WHERE status = 'FAILED';
CREATE INDEX outbox_blocked ON outbox (aggregate_type, aggregate_id, seq) WHERE status = 'BLOCKED';
CREATE INDEX outbox_dead ON outbox (seq) WHERE status = 'DEAD';
CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;

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
CREATE TABLE waybill_suspects (
  seq            INTEGER PRIMARY KEY,
  lane           INTEGER NOT NULL,
  aggregate_type TEXT NOT NULL,
  aggregate_id   TEXT NOT NULL,
  width          INTEGER NOT NULL,
  deaths         INTEGER NOT NULL
);
CREATE INDEX waybill_suspects_aggregate ON waybill_suspects (aggregate_type, aggregate_id);
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
CREATE TABLE waybill_audit (
  at     TEXT NOT NULL,
  who    TEXT NOT NULL,
  action TEXT NOT NULL,
  events INTEGER NOT NULL,
  detail TEXT NOT NULL
);

CREATE TABLE inbox (
  consumer        TEXT NOT NULL,
  event_id        TEXT NOT NULL,
  processed_at    TEXT NOT NULL,
  handler_version INTEGER NOT NULL,
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
CREATE TABLE waybill_seats (
  consumer   TEXT NOT NULL,
  topic      TEXT NOT NULL,
  owner      TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  ttl_ms     REAL NOT NULL,
  PRIMARY KEY (consumer, topic)
) WITHOUT ROWID;

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


-- A seq at the end of its range stops every later insert.
UPDATE outbox SET seq = last.seq + far.n
FROM (SELECT seq, row_number() OVER (ORDER BY seq) AS n FROM outbox WHERE seq > 4503599627370496) AS far,
     (SELECT coalesce(max(seq), 0) AS seq FROM outbox WHERE seq <= 4503599627370496) AS last
WHERE outbox.seq = far.seq;
UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(seq), 0) FROM outbox) WHERE name = 'outbox' AND seq > 4503599627370496;
UPDATE outbox SET next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE status = 'FAILED' AND (next_attempt_at IS NULL OR NOT (typeof(next_attempt_at) = 'text' AND next_attempt_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(next_attempt_at) IS NOT NULL));
UPDATE outbox SET status = 'DEAD', last_error = 'ROW_UNREADABLE: available_at is not a date'
WHERE status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL AND NOT (typeof(available_at) = 'text' AND available_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(available_at) IS NOT NULL);

CREATE TRIGGER outbox_carried BEFORE INSERT ON outbox WHEN NOT (
  typeof(NEW.id) = 'text' AND length(CAST(NEW.id AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.id, char(0)) = 0
  AND typeof(NEW.aggregate_type) = 'text' AND length(CAST(NEW.aggregate_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.aggregate_type, char(0)) = 0
  AND typeof(NEW.aggregate_id) = 'text' AND length(CAST(NEW.aggregate_id AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.aggregate_id, char(0)) = 0
  AND typeof(NEW.event_type) = 'text' AND length(CAST(NEW.event_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.event_type, char(0)) = 0
  AND typeof(NEW.event_version) = 'integer' AND NEW.event_version BETWEEN 1 AND 2147483647
  AND (NEW.payload IS NULL) <> (NEW.payload_bytes IS NULL)
  AND typeof(NEW.content_type) = 'text' AND length(CAST(NEW.content_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.content_type, char(0)) = 0 AND NEW.content_type NOT GLOB '*[^ -~]*'
  AND (NEW.headers = '{}' OR typeof(NEW.headers) = 'text' AND length(CAST(NEW.headers AS BLOB)) <= 131072
      AND instr(NEW.headers, char(0)) = 0 AND CASE WHEN json_valid(NEW.headers) THEN json_type(NEW.headers) = 'object' ELSE 0 END)
  AND (NEW.idempotency_key IS NULL OR typeof(NEW.idempotency_key) = 'text' AND length(CAST(NEW.idempotency_key AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.idempotency_key, char(0)) = 0)
  AND typeof(NEW.created_at) = 'text' AND NEW.created_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.created_at) IS NOT NULL
  AND (NEW.available_at IS NULL OR typeof(NEW.available_at) = 'text' AND NEW.available_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.available_at) IS NOT NULL)
  AND typeof(NEW.retry_count) = 'integer' AND NEW.retry_count BETWEEN 0 AND 2147483647
  AND (NEW.next_attempt_at IS NULL OR typeof(NEW.next_attempt_at) = 'text' AND NEW.next_attempt_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.next_attempt_at) IS NOT NULL) AND (NEW.status <> 'FAILED' OR NEW.next_attempt_at IS NOT NULL)
  AND (NEW.published_at IS NULL OR typeof(NEW.published_at) = 'text' AND NEW.published_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.published_at) IS NOT NULL) AND (NEW.status <> 'PUBLISHED' OR NEW.published_at IS NOT NULL)
  AND NEW.status IN ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED')
  AND (NEW.seq = -1 OR NEW.seq BETWEEN 1 AND 4503599627370496)
  AND NEW.lane IS NULL)
BEGIN
  SELECT RAISE(ABORT, 'waybill constraint: id must be text of 1 to 255 bytes without NUL') WHERE NOT (typeof(NEW.id) = 'text' AND length(CAST(NEW.id AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.id, char(0)) = 0);
  SELECT RAISE(ABORT, 'waybill constraint: aggregate_type must be text of 1 to 255 bytes without NUL') WHERE NOT (typeof(NEW.aggregate_type) = 'text' AND length(CAST(NEW.aggregate_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.aggregate_type, char(0)) = 0);
  SELECT RAISE(ABORT, 'waybill constraint: aggregate_id must be text of 1 to 255 bytes without NUL') WHERE NOT (typeof(NEW.aggregate_id) = 'text' AND length(CAST(NEW.aggregate_id AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.aggregate_id, char(0)) = 0);
  SELECT RAISE(ABORT, 'waybill constraint: event_type must be text of 1 to 255 bytes without NUL') WHERE NOT (typeof(NEW.event_type) = 'text' AND length(CAST(NEW.event_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.event_type, char(0)) = 0);
  SELECT RAISE(ABORT, 'waybill constraint: event_version must be a whole number from 1 to 2147483647') WHERE NOT (typeof(NEW.event_version) = 'integer' AND NEW.event_version BETWEEN 1 AND 2147483647);
  SELECT RAISE(ABORT, 'waybill constraint: an event has either payload or payload_bytes') WHERE NOT ((NEW.payload IS NULL) <> (NEW.payload_bytes IS NULL));
  SELECT RAISE(ABORT, 'waybill constraint: content_type must be 1 to 255 printable ASCII characters') WHERE NOT (typeof(NEW.content_type) = 'text' AND length(CAST(NEW.content_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.content_type, char(0)) = 0 AND NEW.content_type NOT GLOB '*[^ -~]*');
  SELECT RAISE(ABORT, 'waybill constraint: headers must be a JSON object of 131072 bytes at most') WHERE NOT ((NEW.headers = '{}' OR typeof(NEW.headers) = 'text' AND length(CAST(NEW.headers AS BLOB)) <= 131072
      AND instr(NEW.headers, char(0)) = 0 AND CASE WHEN json_valid(NEW.headers) THEN json_type(NEW.headers) = 'object' ELSE 0 END));
  SELECT RAISE(ABORT, 'waybill constraint: idempotency_key must be text of 1 to 255 bytes without NUL') WHERE NOT ((NEW.idempotency_key IS NULL OR typeof(NEW.idempotency_key) = 'text' AND length(CAST(NEW.idempotency_key AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.idempotency_key, char(0)) = 0));
  SELECT RAISE(ABORT, 'waybill constraint: created_at must be a date such as 2026-01-31T23:59:59.000Z') WHERE NOT (typeof(NEW.created_at) = 'text' AND NEW.created_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.created_at) IS NOT NULL);
  SELECT RAISE(ABORT, 'waybill constraint: available_at must be a date such as 2026-01-31T23:59:59.000Z') WHERE NOT ((NEW.available_at IS NULL OR typeof(NEW.available_at) = 'text' AND NEW.available_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.available_at) IS NOT NULL));
  SELECT RAISE(ABORT, 'waybill constraint: retry_count must be a whole number from 0 to 2147483647') WHERE NOT (typeof(NEW.retry_count) = 'integer' AND NEW.retry_count BETWEEN 0 AND 2147483647);
  SELECT RAISE(ABORT, 'waybill constraint: next_attempt_at must be a date, and a FAILED event must have one') WHERE NOT ((NEW.next_attempt_at IS NULL OR typeof(NEW.next_attempt_at) = 'text' AND NEW.next_attempt_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.next_attempt_at) IS NOT NULL) AND (NEW.status <> 'FAILED' OR NEW.next_attempt_at IS NOT NULL));
  SELECT RAISE(ABORT, 'waybill constraint: published_at must be a date, and a PUBLISHED event must have one') WHERE NOT ((NEW.published_at IS NULL OR typeof(NEW.published_at) = 'text' AND NEW.published_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.published_at) IS NOT NULL) AND (NEW.status <> 'PUBLISHED' OR NEW.published_at IS NOT NULL));
  SELECT RAISE(ABORT, 'waybill constraint: status must be left out') WHERE NOT (NEW.status IN ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED'));
  SELECT RAISE(ABORT, 'waybill constraint: seq must be left out') WHERE NOT ((NEW.seq = -1 OR NEW.seq BETWEEN 1 AND 4503599627370496));
  SELECT RAISE(ABORT, 'waybill constraint: lane must be left out') WHERE NOT (NEW.lane IS NULL);
END;
CREATE TRIGGER outbox_carried_still BEFORE UPDATE OF
  id, aggregate_type, aggregate_id, event_type, event_version, content_type, headers, idempotency_key, created_at, available_at
ON outbox WHEN NOT (
  typeof(NEW.id) = 'text' AND length(CAST(NEW.id AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.id, char(0)) = 0
  AND typeof(NEW.aggregate_type) = 'text' AND length(CAST(NEW.aggregate_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.aggregate_type, char(0)) = 0
  AND typeof(NEW.aggregate_id) = 'text' AND length(CAST(NEW.aggregate_id AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.aggregate_id, char(0)) = 0
  AND typeof(NEW.event_type) = 'text' AND length(CAST(NEW.event_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.event_type, char(0)) = 0
  AND typeof(NEW.event_version) = 'integer' AND NEW.event_version BETWEEN 1 AND 2147483647
  AND (NEW.payload IS NULL) <> (NEW.payload_bytes IS NULL)
  AND typeof(NEW.content_type) = 'text' AND length(CAST(NEW.content_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.content_type, char(0)) = 0 AND NEW.content_type NOT GLOB '*[^ -~]*'
  AND (NEW.headers = '{}' OR typeof(NEW.headers) = 'text' AND length(CAST(NEW.headers AS BLOB)) <= 131072
      AND instr(NEW.headers, char(0)) = 0 AND CASE WHEN json_valid(NEW.headers) THEN json_type(NEW.headers) = 'object' ELSE 0 END)
  AND (NEW.idempotency_key IS NULL OR typeof(NEW.idempotency_key) = 'text' AND length(CAST(NEW.idempotency_key AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.idempotency_key, char(0)) = 0)
  AND typeof(NEW.created_at) = 'text' AND NEW.created_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.created_at) IS NOT NULL
  AND (NEW.available_at IS NULL OR typeof(NEW.available_at) = 'text' AND NEW.available_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.available_at) IS NOT NULL)
  AND typeof(NEW.retry_count) = 'integer' AND NEW.retry_count BETWEEN 0 AND 2147483647
  AND (NEW.next_attempt_at IS NULL OR typeof(NEW.next_attempt_at) = 'text' AND NEW.next_attempt_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.next_attempt_at) IS NOT NULL) AND (NEW.status <> 'FAILED' OR NEW.next_attempt_at IS NOT NULL)
  AND (NEW.published_at IS NULL OR typeof(NEW.published_at) = 'text' AND NEW.published_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.published_at) IS NOT NULL) AND (NEW.status <> 'PUBLISHED' OR NEW.published_at IS NOT NULL)
  AND NEW.status IN ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED')
  AND (NEW.seq = -1 OR NEW.seq BETWEEN 1 AND 4503599627370496))
BEGIN
  SELECT RAISE(ABORT, 'waybill constraint: id must be text of 1 to 255 bytes without NUL') WHERE NOT (typeof(NEW.id) = 'text' AND length(CAST(NEW.id AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.id, char(0)) = 0);
  SELECT RAISE(ABORT, 'waybill constraint: aggregate_type must be text of 1 to 255 bytes without NUL') WHERE NOT (typeof(NEW.aggregate_type) = 'text' AND length(CAST(NEW.aggregate_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.aggregate_type, char(0)) = 0);
  SELECT RAISE(ABORT, 'waybill constraint: aggregate_id must be text of 1 to 255 bytes without NUL') WHERE NOT (typeof(NEW.aggregate_id) = 'text' AND length(CAST(NEW.aggregate_id AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.aggregate_id, char(0)) = 0);
  SELECT RAISE(ABORT, 'waybill constraint: event_type must be text of 1 to 255 bytes without NUL') WHERE NOT (typeof(NEW.event_type) = 'text' AND length(CAST(NEW.event_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.event_type, char(0)) = 0);
  SELECT RAISE(ABORT, 'waybill constraint: event_version must be a whole number from 1 to 2147483647') WHERE NOT (typeof(NEW.event_version) = 'integer' AND NEW.event_version BETWEEN 1 AND 2147483647);
  SELECT RAISE(ABORT, 'waybill constraint: an event has either payload or payload_bytes') WHERE NOT ((NEW.payload IS NULL) <> (NEW.payload_bytes IS NULL));
  SELECT RAISE(ABORT, 'waybill constraint: content_type must be 1 to 255 printable ASCII characters') WHERE NOT (typeof(NEW.content_type) = 'text' AND length(CAST(NEW.content_type AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.content_type, char(0)) = 0 AND NEW.content_type NOT GLOB '*[^ -~]*');
  SELECT RAISE(ABORT, 'waybill constraint: headers must be a JSON object of 131072 bytes at most') WHERE NOT ((NEW.headers = '{}' OR typeof(NEW.headers) = 'text' AND length(CAST(NEW.headers AS BLOB)) <= 131072
      AND instr(NEW.headers, char(0)) = 0 AND CASE WHEN json_valid(NEW.headers) THEN json_type(NEW.headers) = 'object' ELSE 0 END));
  SELECT RAISE(ABORT, 'waybill constraint: idempotency_key must be text of 1 to 255 bytes without NUL') WHERE NOT ((NEW.idempotency_key IS NULL OR typeof(NEW.idempotency_key) = 'text' AND length(CAST(NEW.idempotency_key AS BLOB)) BETWEEN 1 AND 255 AND instr(NEW.idempotency_key, char(0)) = 0));
  SELECT RAISE(ABORT, 'waybill constraint: created_at must be a date such as 2026-01-31T23:59:59.000Z') WHERE NOT (typeof(NEW.created_at) = 'text' AND NEW.created_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.created_at) IS NOT NULL);
  SELECT RAISE(ABORT, 'waybill constraint: available_at must be a date such as 2026-01-31T23:59:59.000Z') WHERE NOT ((NEW.available_at IS NULL OR typeof(NEW.available_at) = 'text' AND NEW.available_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.available_at) IS NOT NULL));
  SELECT RAISE(ABORT, 'waybill constraint: retry_count must be a whole number from 0 to 2147483647') WHERE NOT (typeof(NEW.retry_count) = 'integer' AND NEW.retry_count BETWEEN 0 AND 2147483647);
  SELECT RAISE(ABORT, 'waybill constraint: next_attempt_at must be a date, and a FAILED event must have one') WHERE NOT ((NEW.next_attempt_at IS NULL OR typeof(NEW.next_attempt_at) = 'text' AND NEW.next_attempt_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.next_attempt_at) IS NOT NULL) AND (NEW.status <> 'FAILED' OR NEW.next_attempt_at IS NOT NULL));
  SELECT RAISE(ABORT, 'waybill constraint: published_at must be a date, and a PUBLISHED event must have one') WHERE NOT ((NEW.published_at IS NULL OR typeof(NEW.published_at) = 'text' AND NEW.published_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(NEW.published_at) IS NOT NULL) AND (NEW.status <> 'PUBLISHED' OR NEW.published_at IS NOT NULL));
  SELECT RAISE(ABORT, 'waybill constraint: status must be left out') WHERE NOT (NEW.status IN ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED'));
  SELECT RAISE(ABORT, 'waybill constraint: seq must be left out') WHERE NOT ((NEW.seq = -1 OR NEW.seq BETWEEN 1 AND 4503599627370496));
END;
DROP INDEX outbox_unlaned;
CREATE INDEX outbox_unlaned ON outbox (seq) WHERE (typeof(lane) <> 'integer' OR lane NOT BETWEEN 0 AND 63);
CREATE INDEX outbox_discarded ON outbox (created_at) WHERE status = 'DISCARDED';

-- What was marked before had reached its end.
ALTER TABLE inbox ADD COLUMN finished INTEGER NOT NULL DEFAULT 1;
CREATE INDEX waybill_attempts_age ON waybill_attempts (failed_at);
CREATE TABLE waybill_letters (
  seq             INTEGER PRIMARY KEY AUTOINCREMENT,
  parked_at       TEXT NOT NULL,
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
  error_code      TEXT NOT NULL,
  error           TEXT NOT NULL,
  attempts        INTEGER NOT NULL,
  handler_version INTEGER NOT NULL,
  UNIQUE (consumer, topic, id, digest)
);
CREATE TABLE waybill_meta (version INTEGER NOT NULL);
INSERT INTO waybill_meta VALUES (2);
COMMIT;
