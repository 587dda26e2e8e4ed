-- For MariaDB. On MySQL, put utf8mb4_0900_bin in place of utf8mb4_nopad_bin.
SET SESSION lock_wait_timeout = 5;
CREATE TABLE IF NOT EXISTS `waybill_keys` (
  `key`      VARCHAR(255) NOT NULL PRIMARY KEY,
  event_id   VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  KEY age (created_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE TABLE IF NOT EXISTS `outbox` (
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
  published_at    DATETIME(6),
  ready           TINYINT GENERATED ALWAYS AS (CASE WHEN status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL) THEN 1 END) STORED,
  due_at          DATETIME(6) GENERATED ALWAYS AS (CASE WHEN status = 'FAILED' THEN next_attempt_at
                    WHEN status = 'PENDING' AND next_attempt_at IS NULL THEN available_at END) STORED,
  blocked         INT UNSIGNED GENERATED ALWAYS AS (CASE WHEN status = 'BLOCKED' THEN CRC32(CONCAT(aggregate_type, CHAR(31 USING utf8mb4), aggregate_id)) END) STORED,
  PRIMARY KEY (seq),
  UNIQUE KEY id (id),
  KEY ready (ready, seq, lane),
  KEY due (due_at, status, lane),
  KEY blocked (blocked, seq),
  KEY state (status, published_at),
  CONSTRAINT `waybill_id` CHECK (id <> ''),
  CONSTRAINT `waybill_name` CHECK (aggregate_type <> '' AND aggregate_id <> '' AND event_type <> ''),
  CONSTRAINT `waybill_event_version` CHECK (event_version >= 1),
  CONSTRAINT `waybill_payload` CHECK ((payload IS NULL) <> (payload_bytes IS NULL)),
  CONSTRAINT `waybill_headers` CHECK (JSON_VALID(headers)),
  CONSTRAINT `waybill_status` CHECK (status <> '')
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
DELIMITER //
CREATE TRIGGER `waybill_use_key` BEFORE INSERT ON `outbox` FOR EACH ROW
BEGIN
  DECLARE used BOOLEAN DEFAULT FALSE;
  DECLARE first_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
  DECLARE why VARCHAR(128) CHARACTER SET ascii;
  IF NEW.idempotency_key IS NOT NULL AND NEW.id <> '' THEN
    BEGIN
      DECLARE CONTINUE HANDLER FOR 1062 SET used = TRUE;
      INSERT INTO `waybill_keys` (`key`, event_id) VALUES (NEW.idempotency_key, NEW.id);
    END;
    IF used THEN
      SELECT event_id INTO first_id FROM `waybill_keys` WHERE `key` = NEW.idempotency_key LOCK IN SHARE MODE;
      SET why = CONCAT('the idempotency key was used by event ', first_id, ' (for ', NEW.id, ')');
      SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = why;
    END IF;
  END IF;
END //
DELIMITER ;
CREATE TABLE IF NOT EXISTS `waybill_relays` (
  relay      VARCHAR(255) NOT NULL PRIMARY KEY,
  started_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  expires_at DATETIME(6) NOT NULL,
  `window`   INT NOT NULL DEFAULT 0,
  strategy   VARCHAR(255)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE TABLE IF NOT EXISTS `waybill_lanes` (
  lane     TINYINT UNSIGNED NOT NULL PRIMARY KEY,
  owner    VARCHAR(255),
  epoch    BIGINT NOT NULL DEFAULT 0,
  reopened BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
INSERT IGNORE INTO `waybill_lanes` (lane) VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15), (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31), (32), (33), (34), (35), (36), (37), (38), (39), (40), (41), (42), (43), (44), (45), (46), (47), (48), (49), (50), (51), (52), (53), (54), (55), (56), (57), (58), (59), (60), (61), (62), (63);
CREATE TABLE IF NOT EXISTS `waybill_windows` (
  `window`   VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  relay      VARCHAR(255) NOT NULL,
  width      INT NOT NULL,
  events     INT NOT NULL,
  seqs       LONGTEXT NOT NULL,
  claimed_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  KEY relay (relay)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE TABLE IF NOT EXISTS `waybill_suspects` (
  seq            BIGINT NOT NULL PRIMARY KEY,
  lane           TINYINT UNSIGNED NOT NULL,
  aggregate_type VARCHAR(255) NOT NULL,
  aggregate_id   VARCHAR(255) NOT NULL,
  width          INT NOT NULL,
  deaths         INT NOT NULL,
  KEY lane (lane, seq),
  KEY aggregate (aggregate_type, aggregate_id, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE TABLE IF NOT EXISTS `waybill_holds` (
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
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE TABLE IF NOT EXISTS `waybill_destinations` (
  destination VARCHAR(700) NOT NULL,
  lane        TINYINT UNSIGNED NOT NULL,
  why         MEDIUMTEXT NOT NULL,
  since       DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (destination, lane)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE TABLE IF NOT EXISTS `waybill_audit` (
  entry  BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  who    TEXT NOT NULL,
  action VARCHAR(32) NOT NULL,
  events BIGINT NOT NULL,
  detail LONGTEXT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE TABLE IF NOT EXISTS `inbox` (
  consumer        VARCHAR(255) NOT NULL,
  event_id        VARCHAR(255) NOT NULL,
  processed_at    DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  handler_version INT NOT NULL,
  PRIMARY KEY (consumer, event_id),
  KEY age (processed_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE TABLE IF NOT EXISTS `waybill_attempts` (
  consumer   VARCHAR(255) NOT NULL,
  event_id   VARCHAR(255) NOT NULL,
  attempts   INT NOT NULL,
  last_error MEDIUMTEXT NOT NULL,
  failed_at  DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (consumer, event_id),
  KEY age (failed_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE TABLE IF NOT EXISTS `waybill_seats` (
  consumer   VARCHAR(255) NOT NULL,
  topic      VARCHAR(500) NOT NULL,
  owner      VARCHAR(255) NOT NULL,
  expires_at DATETIME(6) NOT NULL,
  PRIMARY KEY (consumer, topic)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE OR REPLACE SQL SECURITY INVOKER VIEW `outbox_events` AS
SELECT o.*,
       CASE WHEN l.owner IS NOT NULL AND o.status IN ('PENDING', 'FAILED') THEN 'PUBLISHING' ELSE o.status END AS state,
       o.status = 'PUBLISHED' AS published,
       l.owner AS owner,
       CASE WHEN o.status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') THEN h.why END AS hold
FROM `outbox` o
LEFT JOIN `waybill_holds` h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
LEFT JOIN (
  SELECT j.seq, w.relay
  FROM `waybill_windows` w
  JOIN `waybill_relays` r ON r.relay = w.relay AND r.expires_at > UTC_TIMESTAMP(6)
  JOIN JSON_TABLE(w.seqs, '$.*[*]' COLUMNS (seq BIGINT PATH '$')) j
) w ON w.seq = o.seq
LEFT JOIN `waybill_lanes` l ON l.lane = o.lane AND l.owner = w.relay;
CREATE TABLE IF NOT EXISTS `waybill_meta` (id TINYINT NOT NULL PRIMARY KEY, version INT NOT NULL) ENGINE = InnoDB;
INSERT INTO `waybill_meta` (id, version) VALUES (1, 1) ON DUPLICATE KEY UPDATE version = VALUES(version);
