import type { PartitionUnit } from "../kit/schema.ts";
import type { Names } from "./names.ts";

/*
 * Version 1: every table, index, trigger and view, in the order in which `migrate` creates them. One text for MariaDB and for MySQL: each
 * reads its own of two comments. It changes in place until it is released, and never afterwards: then a change is a new version.
 * No statement may hold a question mark, which clients take for a parameter.
 */

/** Every character counts, and every space: an ordinary collation takes `order-a` for `order-A`, and for `order-a `. */
const options = `ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE /*M! utf8mb4_nopad_bin */ /*!80019 utf8mb4_0900_bin */`;

/** Which tables these are. Comes first: version 0 says that the others are being created. */
export const meta = (n: Names): string => `CREATE TABLE IF NOT EXISTS ${n.meta} (
  id          TINYINT NOT NULL PRIMARY KEY,
  version     INT NOT NULL,
  fingerprint VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ${options}`;

/** DDL commits by itself, so each statement may run twice; only a trigger has to be looked for. */
export const version1 = (n: Names, unit: PartitionUnit | null): readonly string[] => [
  `CREATE TABLE IF NOT EXISTS ${n.keys} (
  \`key\`      VARCHAR(255) NOT NULL PRIMARY KEY,
  event_id   VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  KEY age (created_at)
) ${options}`,

  // lane: the last bits of a hash of the aggregate. The whole hash is in `blocked`, here and in the holds.
  // A row waits in one of three ways: `ready`, until a moment (`due_at`), or behind a hold (`blocked`). Each has an index, where all other
  // rows are NULL. An outbox is partitioned from the start, or never. `placed_at` is when an event was added, until the event is moved to
  // the partition for those (`rest`). The comment of this partition holds the unit. Those by unit are created afterwards.
  `CREATE TABLE IF NOT EXISTS ${n.outbox} (
  seq             BIGINT NOT NULL AUTO_INCREMENT,
  id              VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT (UUID()),
  aggregate_type  VARCHAR(255) NOT NULL,
  aggregate_id    VARCHAR(255) NOT NULL,
  event_type      VARCHAR(255) NOT NULL,
  event_version   INT NOT NULL DEFAULT 1,
  payload         LONGTEXT,
  payload_bytes   LONGBLOB,
  content_type    VARCHAR(255) NOT NULL DEFAULT 'application/json',
  headers         LONGTEXT NOT NULL DEFAULT ('{}'),
  idempotency_key VARCHAR(255),
  lane            TINYINT UNSIGNED GENERATED ALWAYS AS (CRC32(CONCAT(aggregate_type, CHAR(31 USING utf8mb4), aggregate_id)) & 63) STORED,
  created_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  available_at    DATETIME(6),
  status          ENUM ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED') CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'PENDING',
  retry_count     INT NOT NULL DEFAULT 0,
  next_attempt_at DATETIME(6),
  last_error      MEDIUMTEXT,
  error_code      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin,
  error_detail    MEDIUMTEXT,
  published_at    DATETIME(6),
  ready           TINYINT GENERATED ALWAYS AS (CASE WHEN status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL) THEN 1 END) STORED,
  due_at          DATETIME(6) GENERATED ALWAYS AS (CASE WHEN status = 'FAILED' THEN next_attempt_at
                    WHEN status = 'PENDING' AND next_attempt_at IS NULL THEN available_at END) STORED,
  blocked         INT UNSIGNED GENERATED ALWAYS AS (CASE WHEN status = 'BLOCKED' THEN CRC32(CONCAT(aggregate_type, CHAR(31 USING utf8mb4), aggregate_id)) END) STORED,
${
  unit === null
    ? `  PRIMARY KEY (seq),
  UNIQUE KEY id (id),`
    : `  placed_at       DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (seq, placed_at),
  KEY id (id),`
}
  KEY ready (ready, seq, lane),
  KEY due (due_at, status, lane),
  KEY blocked (blocked, seq),
  KEY state (status, published_at)
) ${options}${
    unit === null
      ? ""
      : ` PARTITION BY RANGE COLUMNS (placed_at) (
  PARTITION rest VALUES LESS THAN ('1971-01-01') COMMENT = '${unit}',
  PARTITION later VALUES LESS THAN (MAXVALUE)
)`
  }`,

  // Refuses rows that no relay could carry, with the error of a constraint. A CHECK would not do: a session can turn CHECKs off, and an
  // UPDATE that parks a bad row would violate them again. NULL counts as broken, since INSERT IGNORE replaces a NULL in a NOT NULL column by
  // another value. A date with a zero in it has no TO_DAYS. The length of headers comes before JSON is parsed.
  String.raw`CREATE TRIGGER ${n.guard} BEFORE INSERT ON ${n.outbox} FOR EACH ROW
BEGIN
  DECLARE why VARCHAR(128) CHARACTER SET utf8mb4;
  -- MySQL raises this error where JSON is nested too deeply.
  DECLARE CONTINUE HANDLER FOR 3157 SET why = ${n.failed("headers")};
  SET why = CASE
    WHEN NOT COALESCE(OCTET_LENGTH(NEW.id) > 0 AND LOCATE(CHAR(0 USING ascii), NEW.id) = 0, 0)
      THEN ${n.failed("id")}
    WHEN NOT COALESCE(OCTET_LENGTH(NEW.aggregate_type) BETWEEN 1 AND 255 AND LOCATE(CHAR(0 USING utf8mb4), NEW.aggregate_type) = 0
        AND OCTET_LENGTH(NEW.aggregate_id) BETWEEN 1 AND 255 AND LOCATE(CHAR(0 USING utf8mb4), NEW.aggregate_id) = 0
        AND OCTET_LENGTH(NEW.event_type) BETWEEN 1 AND 255 AND LOCATE(CHAR(0 USING utf8mb4), NEW.event_type) = 0, 0)
      THEN ${n.failed("name")}
    WHEN NOT COALESCE(NEW.event_version >= 1, 0)
      THEN ${n.failed("event_version")}
    WHEN (NEW.payload IS NULL) = (NEW.payload_bytes IS NULL)
      THEN ${n.failed("payload")}
    WHEN NOT COALESCE(NEW.content_type <> '' AND NEW.content_type NOT REGEXP '[^ -~]', 0)
      THEN ${n.failed("content_type")}
    WHEN NEW.idempotency_key IS NOT NULL
        AND NOT (OCTET_LENGTH(NEW.idempotency_key) BETWEEN 1 AND 255 AND LOCATE(CHAR(0 USING utf8mb4), NEW.idempotency_key) = 0)
      THEN ${n.failed("idempotency_key")}
    WHEN NEW.status + 0 = 0 OR NEW.status = 'FAILED' AND NEW.next_attempt_at IS NULL
      THEN ${n.failed("status")}
    WHEN NOT COALESCE(NEW.retry_count BETWEEN 0 AND 1000000, 0)
      THEN ${n.failed("retry_count")}
    WHEN NEW.created_at IS NOT NULL AND TO_DAYS(NEW.created_at) IS NULL
        OR NEW.available_at IS NOT NULL AND TO_DAYS(NEW.available_at) IS NULL
        OR NEW.next_attempt_at IS NOT NULL AND TO_DAYS(NEW.next_attempt_at) IS NULL
        OR NEW.published_at IS NOT NULL AND TO_DAYS(NEW.published_at) IS NULL
      THEN ${n.failed("moment")}
    WHEN NEW.headers = '{}'
      THEN NULL
    WHEN NOT COALESCE(OCTET_LENGTH(NEW.headers) <= 16384 AND LOCATE(CHAR(0 USING utf8mb4), NEW.headers) = 0, 0)
      THEN ${n.failed("headers")}
    WHEN NOT COALESCE(JSON_VALID(NEW.headers) = 1 AND JSON_TYPE(NEW.headers) = 'OBJECT', 0)
      THEN ${n.failed("headers")}
    -- JSON_VALID of MariaDB takes escapes that JSON does not have, and numbers that end in the middle. That of MySQL does not.
    WHEN (JSON_VALID('[1.]') OR JSON_VALID('["\\x"]'))
        AND (LOCATE(CHAR(92), REGEXP_REPLACE(NEW.headers, '\\\\["\\\\/bfnrtu]', '')) > 0
          OR REGEXP_REPLACE(NEW.headers, '"[^"\\\\]*+(\\\\.[^"\\\\]*+)*+"', '') REGEXP '-[^0-9]|[.][^0-9]|[0-9][eE][^-+0-9]|[eE][-+][^0-9]')
      THEN ${n.failed("headers")}
  END;
  IF why IS NOT NULL THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = why;
  END IF;
END`,

  // A row with a used key is refused, from plain SQL too. The trigger has the rights of the user who migrated: a writer needs none on the
  // keys. A trigger cannot skip a row, so the statement fails, and its message names the event that used the key first.
  `CREATE TRIGGER ${n.use_key} BEFORE INSERT ON ${n.outbox} FOR EACH ROW
BEGIN
  DECLARE used BOOLEAN DEFAULT FALSE;
  DECLARE first_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
  DECLARE why VARCHAR(128) CHARACTER SET ascii;
  IF NEW.idempotency_key IS NOT NULL AND NEW.id <> '' THEN
    BEGIN
      DECLARE CONTINUE HANDLER FOR 1062 SET used = TRUE;
      INSERT INTO ${n.keys} (\`key\`, event_id) VALUES (NEW.idempotency_key, NEW.id);
    END;
    IF used THEN
      SELECT event_id INTO first_id FROM ${n.keys} WHERE \`key\` = NEW.idempotency_key LOCK IN SHARE MODE;
      SET why = CONCAT('the idempotency key was used by event ', first_id, ' (for ', NEW.id, ')');
      SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = why;
    END IF;
  END IF;
END`,

  // `renewals`, here and in the seats, distinguishes one renewal of a lease from the next, whatever the clock says.
  `CREATE TABLE IF NOT EXISTS ${n.relays} (
  relay      VARCHAR(255) NOT NULL PRIMARY KEY,
  started_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  expires_at DATETIME(6) NOT NULL,
  renewed_at DATETIME(6) NOT NULL,
  ttl_ms     BIGINT NOT NULL,
  renewals   BIGINT NOT NULL DEFAULT 0,
  \`window\`   INT NOT NULL DEFAULT 0,
  strategy   VARCHAR(255)
) ${options}`,

  // These rows change when lanes change hands, and when an operator puts old events back into a lane (reopened).
  `CREATE TABLE IF NOT EXISTS ${n.lanes} (
  lane     TINYINT UNSIGNED NOT NULL PRIMARY KEY,
  owner    VARCHAR(255),
  epoch    BIGINT NOT NULL DEFAULT 0,
  reopened BIGINT NOT NULL DEFAULT 0
) ${options}`,
  `INSERT IGNORE INTO ${n.lanes} (lane) VALUES
  (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15), (16), (17), (18), (19), (20), (21),
  (22), (23), (24), (25), (26), (27), (28), (29), (30), (31), (32), (33), (34), (35), (36), (37), (38), (39), (40), (41), (42),
  (43), (44), (45), (46), (47), (48), (49), (50), (51), (52), (53), (54), (55), (56), (57), (58), (59), (60), (61), (62), (63)`,

  `CREATE TABLE IF NOT EXISTS ${n.windows} (
  \`window\`   VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  relay      VARCHAR(255) NOT NULL,
  width      INT NOT NULL,
  events     INT NOT NULL,
  seqs       LONGTEXT NOT NULL,
  claimed_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  KEY relay (relay)
) ${options}`,

  `CREATE TABLE IF NOT EXISTS ${n.suspects} (
  seq            BIGINT NOT NULL PRIMARY KEY,
  lane           TINYINT UNSIGNED NOT NULL,
  aggregate_type VARCHAR(255) NOT NULL,
  aggregate_id   VARCHAR(255) NOT NULL,
  width          INT NOT NULL,
  deaths         INT NOT NULL,
  KEY lane (lane, seq),
  KEY aggregate (aggregate_type, aggregate_id, seq)
) ${options}`,

  `CREATE TABLE IF NOT EXISTS ${n.holds} (
  aggregate_type VARCHAR(255) NOT NULL,
  aggregate_id   VARCHAR(255) NOT NULL,
  lane           TINYINT UNSIGNED NOT NULL,
  cause_seq      BIGINT NOT NULL,
  destination    VARCHAR(700),
  why            MEDIUMTEXT NOT NULL,
  since          DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  free_to        BIGINT,
  blocked        INT UNSIGNED GENERATED ALWAYS AS (CRC32(CONCAT(aggregate_type, CHAR(31 USING utf8mb4), aggregate_id))) STORED,
  releasing      TINYINT UNSIGNED GENERATED ALWAYS AS (CASE WHEN free_to IS NOT NULL THEN lane END) STORED,
  PRIMARY KEY (aggregate_type, aggregate_id),
  KEY cause (cause_seq),
  KEY releasing (releasing),
  KEY destination (destination, since)
) ${options}`,

  `CREATE TABLE IF NOT EXISTS ${n.destinations} (
  destination VARCHAR(700) NOT NULL,
  lane        TINYINT UNSIGNED NOT NULL,
  why         MEDIUMTEXT NOT NULL,
  since       DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (destination, lane)
) ${options}`,

  `CREATE TABLE IF NOT EXISTS ${n.audit} (
  entry  BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  who    TEXT NOT NULL,
  action VARCHAR(32) NOT NULL,
  events BIGINT NOT NULL,
  detail LONGTEXT NOT NULL
) ${options}`,

  `CREATE TABLE IF NOT EXISTS ${n.inbox} (
  consumer        VARCHAR(255) NOT NULL,
  event_id        VARCHAR(255) NOT NULL,
  processed_at    DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  handler_version INT NOT NULL,
  finished        TINYINT NOT NULL DEFAULT 1,
  PRIMARY KEY (consumer, event_id),
  KEY age (processed_at),
  KEY own_age (consumer, processed_at)
) ${options}`,

  `CREATE TABLE IF NOT EXISTS ${n.attempts} (
  consumer   VARCHAR(255) NOT NULL,
  event_id   VARCHAR(255) NOT NULL,
  attempts   INT NOT NULL,
  last_error MEDIUMTEXT NOT NULL,
  failed_at  DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (consumer, event_id),
  KEY age (failed_at),
  KEY own_age (consumer, failed_at)
) ${options}`,

  `CREATE TABLE IF NOT EXISTS ${n.seats} (
  consumer   VARCHAR(255) NOT NULL,
  topic      VARCHAR(500) NOT NULL,
  owner      VARCHAR(255) NOT NULL,
  expires_at DATETIME(6) NOT NULL,
  renewed_at DATETIME(6) NOT NULL,
  ttl_ms     BIGINT NOT NULL,
  renewals   BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (consumer, topic)
) ${options}`,

  `CREATE TABLE IF NOT EXISTS ${n.letters} (
  consumer        VARBINARY(255) NOT NULL,
  topic           VARBINARY(255) NOT NULL,
  id              VARBINARY(255) NOT NULL,
  digest          VARBINARY(64) NOT NULL,
  seq             BIGINT NOT NULL AUTO_INCREMENT,
  aggregate_type  VARCHAR(255) NOT NULL,
  aggregate_id    VARCHAR(255) NOT NULL,
  event_type      VARCHAR(255) NOT NULL,
  envelope        LONGTEXT NOT NULL,
  data            LONGBLOB NOT NULL,
  raw             LONGBLOB,
  whole           TINYINT NOT NULL DEFAULT 1,
  error_code      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  error           LONGTEXT NOT NULL,
  error_detail    LONGTEXT,
  attempts        INT NOT NULL,
  handler_version INT NOT NULL,
  parked_at       DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  redriven_at     DATETIME(6),
  PRIMARY KEY (consumer, topic, id, digest),
  UNIQUE KEY seq (seq),
  KEY redriven (consumer, topic, redriven_at)
) ${options}`,

  // For a person at a SQL prompt: the derived state, which relay publishes the event, and why it waits.
  `CREATE OR REPLACE SQL SECURITY INVOKER VIEW ${n.events} AS
SELECT o.*,
       CASE WHEN l.owner IS NOT NULL AND o.status IN ('PENDING', 'FAILED') THEN 'PUBLISHING' ELSE o.status END AS state,
       o.status = 'PUBLISHED' AS published,
       l.owner AS owner,
       CASE WHEN o.status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') THEN h.why END AS hold
FROM ${n.outbox} o
LEFT JOIN ${n.holds} h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
LEFT JOIN (
  SELECT j.seq, w.relay
  FROM ${n.windows} w
  JOIN ${n.relays} r ON r.relay = w.relay AND r.expires_at > UTC_TIMESTAMP(6)
  JOIN JSON_TABLE(w.seqs, '$.*[*]' COLUMNS (seq BIGINT PATH '$')) j
) w ON w.seq = o.seq
LEFT JOIN ${n.lanes} l ON l.lane = o.lane AND l.owner = w.relay`,
];
