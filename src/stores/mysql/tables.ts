import { LANES } from "../../core/lane.ts";
import { guard, replaced } from "./guard.ts";
import type { PartitionUnit } from "../kit/schema.ts";
import { partitionedBy } from "./layout.ts";
import type { Names } from "./names.ts";

/** Every character counts, and every space: an ordinary collation takes `order-a` for `order-A`, and for `order-a `. */
export type Collation = "utf8mb4_nopad_bin" | "utf8mb4_0900_bin";

const now = "DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))";
const token = (length: number): string => `VARCHAR(${length}) CHARACTER SET ascii COLLATE ascii_bin`;
/** A hash of the aggregate in 32 bits, the last of which are its lane. Defined here and nowhere else. */
const hash = "CRC32(CONCAT(aggregate_type, CHAR(31 USING utf8mb4), aggregate_id))";
const isReady = "status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL)";

/** Every event with its derived state. */
const events = (n: Names): string => `
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
LEFT JOIN ${n.lanes} l ON l.lane = o.lane AND l.owner = w.relay`;

/**
 * A row with a used key is refused, from plain SQL too. The trigger has the rights of the user who migrated: a writer needs none on the
 * keys. A trigger cannot skip a row, so the statement fails, and its message names the event that used the key first.
 */
const useKey = (n: Names): string => `
CREATE TRIGGER ${n.use_key} BEFORE INSERT ON ${n.outbox} FOR EACH ROW
BEGIN
  DECLARE used BOOLEAN DEFAULT FALSE;
  DECLARE first_id ${token(36)};
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
END`;

/** What `useKey` says: which event has the key, and which one it was refused for. */
export const keyUsed = /the idempotency key was used by event (\S+) \(for (\S+)\)/;

export interface TableStep {
  readonly sql: string;
  /** The trigger that this step creates. Not every server has CREATE OR REPLACE TRIGGER, so the migration looks for it first. */
  readonly trigger?: string;
  /** The errors by which the server says that this was done before. */
  readonly done?: readonly number[];
}

/** There is such a column. */
const columnThere = [1060];
const indexThere = [1061];
/** There is no such constraint: MariaDB's number, and MySQL's. */
const constraintGone = [1091, 3940];

const tableIn =
  (collation: Collation) =>
  (columns: string, partitions = ""): TableStep => ({
    sql: `CREATE TABLE IF NOT EXISTS ${columns} ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE ${collation}${partitions}`,
  });

/**
 * One entry per version, applied in order, never changed once released. DDL commits by itself, so each step may run twice. An outbox is
 * partitioned from the start, or never. `placed_at` is when an event was added, until the event is moved out of its partition.
 */
export const migrations: readonly ((n: Names, collation: Collation, unit: PartitionUnit | null) => readonly TableStep[])[] = [
  (n, collation, unit) => {
    const table = tableIn(collation);
    return [
      table(`${n.keys} (
  \`key\`      VARCHAR(255) NOT NULL PRIMARY KEY,
  event_id   ${token(36)} NOT NULL,
  created_at ${now},
  KEY age (created_at)
)`),
      // How a row waits: `ready`, until a moment (`due_at`), or behind a hold (`blocked`). In the index of each, all other rows are NULL.
      table(
        `${n.outbox} (
  seq             BIGINT NOT NULL AUTO_INCREMENT,
  id              ${token(36)} NOT NULL DEFAULT (UUID()),
  aggregate_type  VARCHAR(255) NOT NULL,
  aggregate_id    VARCHAR(255) NOT NULL,
  event_type      VARCHAR(255) NOT NULL,
  event_version   INT NOT NULL DEFAULT 1,
  payload         LONGTEXT,
  payload_bytes   LONGBLOB,
  content_type    VARCHAR(255) NOT NULL DEFAULT 'application/json',
  headers         LONGTEXT NOT NULL DEFAULT ('{}'),
  idempotency_key VARCHAR(255),
  lane            TINYINT UNSIGNED GENERATED ALWAYS AS (${hash} & ${LANES - 1}) STORED,
  created_at      ${now},
  available_at    DATETIME(6),
  status          ENUM ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED') CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'PENDING',
  retry_count     INT NOT NULL DEFAULT 0,
  next_attempt_at DATETIME(6),
  last_error      MEDIUMTEXT,
  published_at    DATETIME(6),
  ready           TINYINT GENERATED ALWAYS AS (CASE WHEN ${isReady} THEN 1 END) STORED,
  due_at          DATETIME(6) GENERATED ALWAYS AS (CASE WHEN status = 'FAILED' THEN next_attempt_at
                    WHEN status = 'PENDING' AND next_attempt_at IS NULL THEN available_at END) STORED,
  blocked         INT UNSIGNED GENERATED ALWAYS AS (CASE WHEN status = 'BLOCKED' THEN ${hash} END) STORED,
  ${unit === null ? "PRIMARY KEY (seq),\n  UNIQUE KEY id (id)" : `placed_at       ${now},\n  PRIMARY KEY (seq, placed_at),\n  KEY id (id)`},
  KEY ready (ready, seq, lane),
  KEY due (due_at, status, lane),
  KEY blocked (blocked, seq),
  KEY state (status, published_at),
  CONSTRAINT ${n.constraint("id")} CHECK (id <> ''),
  CONSTRAINT ${n.constraint("name")} CHECK (aggregate_type <> '' AND aggregate_id <> '' AND event_type <> ''),
  CONSTRAINT ${n.constraint("event_version")} CHECK (event_version >= 1),
  CONSTRAINT ${n.constraint("payload")} CHECK ((payload IS NULL) <> (payload_bytes IS NULL)),
  CONSTRAINT ${n.constraint("headers")} CHECK (JSON_VALID(headers)),
  CONSTRAINT ${n.constraint("status")} CHECK (status <> '')
)`,
        unit === null ? "" : partitionedBy(unit),
      ),
      { sql: useKey(n), trigger: n.plain("use_key") },
      table(`${n.relays} (
  relay      VARCHAR(255) NOT NULL PRIMARY KEY,
  started_at ${now},
  expires_at DATETIME(6) NOT NULL,
  \`window\`   INT NOT NULL DEFAULT 0,
  strategy   VARCHAR(255)
)`),
      // These rows change when lanes change hands, and when an operator puts old events back into a lane (reopened).
      table(`${n.lanes} (
  lane     TINYINT UNSIGNED NOT NULL PRIMARY KEY,
  owner    VARCHAR(255),
  epoch    BIGINT NOT NULL DEFAULT 0,
  reopened BIGINT NOT NULL DEFAULT 0
)`),
      { sql: `INSERT IGNORE INTO ${n.lanes} (lane) VALUES ${Array.from({ length: LANES }, (_, lane) => `(${lane})`).join(", ")}` },
      table(`${n.windows} (
  \`window\`   ${token(36)} NOT NULL PRIMARY KEY,
  relay      VARCHAR(255) NOT NULL,
  width      INT NOT NULL,
  events     INT NOT NULL,
  seqs       LONGTEXT NOT NULL,
  claimed_at ${now},
  KEY relay (relay)
)`),
      table(`${n.suspects} (
  seq            BIGINT NOT NULL PRIMARY KEY,
  lane           TINYINT UNSIGNED NOT NULL,
  aggregate_type VARCHAR(255) NOT NULL,
  aggregate_id   VARCHAR(255) NOT NULL,
  width          INT NOT NULL,
  deaths         INT NOT NULL,
  KEY lane (lane, seq),
  KEY aggregate (aggregate_type, aggregate_id, seq)
)`),
      table(`${n.holds} (
  aggregate_type VARCHAR(255) NOT NULL,
  aggregate_id   VARCHAR(255) NOT NULL,
  lane           TINYINT UNSIGNED NOT NULL,
  cause_seq      BIGINT NOT NULL,
  destination    VARCHAR(700),
  why            MEDIUMTEXT NOT NULL,
  since          ${now},
  free_to        BIGINT,
  blocked        INT UNSIGNED GENERATED ALWAYS AS (${hash}) STORED,
  releasing      TINYINT UNSIGNED GENERATED ALWAYS AS (CASE WHEN free_to IS NOT NULL THEN lane END) STORED,
  PRIMARY KEY (aggregate_type, aggregate_id),
  KEY cause (cause_seq),
  KEY releasing (releasing),
  KEY destination (destination, since)
)`),
      table(`${n.destinations} (
  destination VARCHAR(700) NOT NULL,
  lane        TINYINT UNSIGNED NOT NULL,
  why         MEDIUMTEXT NOT NULL,
  since       ${now},
  PRIMARY KEY (destination, lane)
)`),
      table(`${n.audit} (
  entry  BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at     ${now},
  who    TEXT NOT NULL,
  action VARCHAR(32) NOT NULL,
  events BIGINT NOT NULL,
  detail LONGTEXT NOT NULL
)`),
      table(`${n.inbox} (
  consumer        VARCHAR(255) NOT NULL,
  event_id        VARCHAR(255) NOT NULL,
  processed_at    ${now},
  handler_version INT NOT NULL,
  PRIMARY KEY (consumer, event_id),
  KEY age (processed_at)
)`),
      table(`${n.attempts} (
  consumer   VARCHAR(255) NOT NULL,
  event_id   VARCHAR(255) NOT NULL,
  attempts   INT NOT NULL,
  last_error MEDIUMTEXT NOT NULL,
  failed_at  ${now},
  PRIMARY KEY (consumer, event_id),
  KEY age (failed_at)
)`),
      table(`${n.seats} (
  consumer   VARCHAR(255) NOT NULL,
  topic      VARCHAR(500) NOT NULL,
  owner      VARCHAR(255) NOT NULL,
  expires_at DATETIME(6) NOT NULL,
  PRIMARY KEY (consumer, topic)
)`),
      // For a person at a SQL prompt: the derived state, which relay publishes the event, and why it waits.
      { sql: `CREATE OR REPLACE SQL SECURITY INVOKER VIEW ${n.events} AS${events(n)}` },
    ];
  },
  // Nothing here copies a table: writers, relays and subscribers of version 1 go on meanwhile.
  (n, collation) => {
    const table = tableIn(collation);
    const add = (to: string, column: string): TableStep => ({ sql: `ALTER TABLE ${to} ADD COLUMN ${column}`, done: columnThere });
    const index = (to: string, key: string): TableStep => ({ sql: `ALTER TABLE ${to} ADD KEY ${key}`, done: indexThere });
    return [
      { sql: guard(n, collation === "utf8mb4_nopad_bin"), trigger: n.plain("guard") },
      // Only now that the guard is there, which replaces them.
      {
        sql: `ALTER TABLE ${n.outbox} ${replaced.map((name) => `DROP CONSTRAINT ${n.constraint(name)}`).join(", ")}`,
        done: constraintGone,
      },
      // A failed event without a time for its next attempt would never be retried.
      { sql: `UPDATE ${n.outbox} SET next_attempt_at = UTC_TIMESTAMP(6) WHERE due_at IS NULL AND status = 'FAILED'` },
      // Marks that are there count as finished.
      add(n.inbox, "finished TINYINT NOT NULL DEFAULT 1"),
      // Finds one consumer's old rows without a walk over other consumers' rows.
      index(n.inbox, "own_age (consumer, processed_at)"),
      index(n.attempts, "own_age (consumer, failed_at)"),
      // These distinguish one renewal of a lease from the next, whatever the clock says meanwhile.
      ...[n.relays, n.seats].flatMap((to) => [
        add(to, "renewed_at DATETIME(6)"),
        add(to, "ttl_ms BIGINT"),
        add(to, "renewals BIGINT NOT NULL DEFAULT 0"),
      ]),
      table(`${n.letters} (
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
  error_code      ${token(64)} NOT NULL,
  error           LONGTEXT NOT NULL,
  attempts        INT NOT NULL,
  handler_version INT NOT NULL,
  parked_at       ${now},
  PRIMARY KEY (consumer, topic, id, digest),
  UNIQUE KEY seq (seq)
)`),
    ];
  },
  // Code and detail of an error apart from its text, and when a letter was redriven.
  (n) => {
    const add = (to: string, column: string): TableStep => ({ sql: `ALTER TABLE ${to} ADD COLUMN ${column}`, done: columnThere });
    return [
      add(n.outbox, `error_code ${token(64)}`),
      add(n.outbox, "error_detail MEDIUMTEXT"),
      add(n.letters, "whole TINYINT NOT NULL DEFAULT 1"),
      add(n.letters, "error_detail LONGTEXT"),
      add(n.letters, "redriven_at DATETIME(6)"),
      { sql: `ALTER TABLE ${n.letters} ADD KEY redriven (consumer, topic, redriven_at)`, done: indexThere },
      // Attempts are counted from zero once a letter is redriven.
      {
        sql: `DELETE a FROM ${n.attempts} a JOIN ${n.letters} l ON l.consumer = CAST(a.consumer AS BINARY) AND l.id = CAST(a.event_id AS BINARY)`,
      },
      // Until this version, only the error's text says that a letter was cut.
      { sql: `UPDATE ${n.letters} SET whole = 0 WHERE error LIKE '%(the inbox did not take its %'` },
      { sql: `CREATE OR REPLACE SQL SECURITY INVOKER VIEW ${n.events} AS${events(n)}` },
    ];
  },
];

/** The version of the tables; the last step, once everything else is there. */
export const meta = (n: Names, version: number): readonly TableStep[] => [
  { sql: `CREATE TABLE IF NOT EXISTS ${n.meta} (id TINYINT NOT NULL PRIMARY KEY, version INT NOT NULL) ENGINE = InnoDB` },
  { sql: `INSERT INTO ${n.meta} (id, version) VALUES (1, ${version}) ON DUPLICATE KEY UPDATE version = VALUES(version)` },
];
