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
DELIMITER //
CREATE TRIGGER `waybill_guard` BEFORE INSERT ON `outbox` FOR EACH ROW
BEGIN
  IF NOT COALESCE((OCTET_LENGTH(NEW.id) > 0 AND LOCATE(CHAR(0 USING ascii), NEW.id) = 0), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = _utf8mb4 X'434f4e53545241494e54206077617962696c6c5f696460206661696c6564';
  END IF;
  IF NOT COALESCE((OCTET_LENGTH(NEW.aggregate_type) BETWEEN 1 AND 255 AND LOCATE(CHAR(0 USING utf8mb4), NEW.aggregate_type) = 0 AND OCTET_LENGTH(NEW.aggregate_id) BETWEEN 1 AND 255 AND LOCATE(CHAR(0 USING utf8mb4), NEW.aggregate_id) = 0 AND OCTET_LENGTH(NEW.event_type) BETWEEN 1 AND 255 AND LOCATE(CHAR(0 USING utf8mb4), NEW.event_type) = 0), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = _utf8mb4 X'434f4e53545241494e54206077617962696c6c5f6e616d6560206661696c6564';
  END IF;
  IF NOT COALESCE((NEW.event_version >= 1), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = _utf8mb4 X'434f4e53545241494e54206077617962696c6c5f6576656e745f76657273696f6e60206661696c6564';
  END IF;
  IF NOT COALESCE(((NEW.payload IS NULL) <> (NEW.payload_bytes IS NULL)), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = _utf8mb4 X'434f4e53545241494e54206077617962696c6c5f7061796c6f616460206661696c6564';
  END IF;
  IF NOT COALESCE((NEW.content_type REGEXP _utf8mb4 X'5e5b202d7e5d2b24'), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = _utf8mb4 X'434f4e53545241494e54206077617962696c6c5f636f6e74656e745f7479706560206661696c6564';
  END IF;
  IF NOT COALESCE((NEW.idempotency_key IS NULL OR OCTET_LENGTH(NEW.idempotency_key) BETWEEN 1 AND 255 AND LOCATE(CHAR(0 USING utf8mb4), NEW.idempotency_key) = 0), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = _utf8mb4 X'434f4e53545241494e54206077617962696c6c5f6964656d706f74656e63795f6b657960206661696c6564';
  END IF;
  IF NOT COALESCE((NEW.headers = _utf8mb4 X'7b7d' OR OCTET_LENGTH(NEW.headers) <= 131072 AND COALESCE(JSON_VALID(NEW.headers), 0) = 1
      AND JSON_TYPE(NEW.headers) = 'OBJECT' AND LOCATE(CHAR(92), REGEXP_REPLACE(NEW.headers, _utf8mb4 X'5c5c5b225c5c2f62666e7274755d', _utf8mb4 X'')) = 0 AND NOT REGEXP_REPLACE(NEW.headers, _utf8mb4 X'22283f3a5b5e225c5c5d2b2b7c5c5c2e292a2b22', _utf8mb4 X'') REGEXP _utf8mb4 X'2d283f215b302d395d297c5b2e5d283f215b302d395d297c5b302d395d5b65455d283f215b2d2b5d3f5b302d395d29'), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = _utf8mb4 X'434f4e53545241494e54206077617962696c6c5f6865616465727360206661696c6564';
  END IF;
  IF NOT COALESCE((NEW.status + 0 > 0 AND (NEW.status <> 'FAILED' OR NEW.next_attempt_at IS NOT NULL)), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = _utf8mb4 X'434f4e53545241494e54206077617962696c6c5f73746174757360206661696c6564';
  END IF;
  IF NOT COALESCE((NEW.retry_count BETWEEN 0 AND 1000000), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = _utf8mb4 X'434f4e53545241494e54206077617962696c6c5f72657472795f636f756e7460206661696c6564';
  END IF;
  IF NOT COALESCE(((NEW.created_at IS NULL OR TO_DAYS(NEW.created_at) IS NOT NULL) AND (NEW.available_at IS NULL OR TO_DAYS(NEW.available_at) IS NOT NULL) AND (NEW.next_attempt_at IS NULL OR TO_DAYS(NEW.next_attempt_at) IS NOT NULL) AND (NEW.published_at IS NULL OR TO_DAYS(NEW.published_at) IS NOT NULL)), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = _utf8mb4 X'434f4e53545241494e54206077617962696c6c5f6d6f6d656e7460206661696c6564';
  END IF;
END //
DELIMITER ;
ALTER TABLE `outbox` DROP CONSTRAINT `waybill_id`, DROP CONSTRAINT `waybill_name`, DROP CONSTRAINT `waybill_event_version`, DROP CONSTRAINT `waybill_payload`, DROP CONSTRAINT `waybill_headers`, DROP CONSTRAINT `waybill_status`;
UPDATE `outbox` SET next_attempt_at = UTC_TIMESTAMP(6) WHERE due_at IS NULL AND status = 'FAILED';
ALTER TABLE `inbox` ADD COLUMN finished TINYINT NOT NULL DEFAULT 1;
ALTER TABLE `inbox` ADD KEY own_age (consumer, processed_at);
ALTER TABLE `waybill_attempts` ADD KEY own_age (consumer, failed_at);
ALTER TABLE `waybill_relays` ADD COLUMN renewed_at DATETIME(6);
ALTER TABLE `waybill_relays` ADD COLUMN ttl_ms BIGINT;
ALTER TABLE `waybill_relays` ADD COLUMN renewals BIGINT NOT NULL DEFAULT 0;
ALTER TABLE `waybill_seats` ADD COLUMN renewed_at DATETIME(6);
ALTER TABLE `waybill_seats` ADD COLUMN ttl_ms BIGINT;
ALTER TABLE `waybill_seats` ADD COLUMN renewals BIGINT NOT NULL DEFAULT 0;
CREATE TABLE IF NOT EXISTS `waybill_letters` (
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
  error_code      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  error           LONGTEXT NOT NULL,
  attempts        INT NOT NULL,
  handler_version INT NOT NULL,
  parked_at       DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  PRIMARY KEY (consumer, topic, id, digest),
  UNIQUE KEY seq (seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
CREATE TABLE IF NOT EXISTS `waybill_meta` (id TINYINT NOT NULL PRIMARY KEY, version INT NOT NULL) ENGINE = InnoDB;
INSERT INTO `waybill_meta` (id, version) VALUES (1, 2) ON DUPLICATE KEY UPDATE version = VALUES(version);
