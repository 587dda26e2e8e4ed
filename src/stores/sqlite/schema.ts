import type { Schema } from "../../contracts/store.ts";
import { LANES } from "../../core/lane.ts";
import type { Connection, Statements } from "../../drivers/sqlite/connection.ts";
import { checkFrom, checkVersion, inOneTransaction, refuseNewer } from "../kit/schema.ts";
import { delayed, pending } from "./predicates.ts";
import { toVersion2 } from "./version-2.ts";
import { toVersion3 } from "./version-3.ts";

export const now = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";

/** Every event with its derived state, judged at a moment given in SQL. */
export function eventsAt(moment: string): string {
  return `
SELECT o.*,
       CASE WHEN w.relay IS NOT NULL AND o.status IN ('PENDING', 'FAILED') THEN 'PUBLISHING' ELSE o.status END AS state,
       o.status = 'PUBLISHED' AS published,
       w.relay AS owner,
       CASE WHEN o.status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') THEN h.why END AS hold
FROM outbox o
LEFT JOIN waybill_holds h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
LEFT JOIN (
  ${publishingAt(moment)}
) w ON w.seq = o.seq`;
}

/** The events that relays with a live lease have in hand. */
export function publishingAt(moment: string): string {
  return `SELECT j.value AS seq, w.relay
  FROM waybill_windows w
  JOIN waybill_lanes l ON l.lane = w.lane AND l.owner = w.relay AND l.epoch = w.epoch
  JOIN waybill_relays r ON r.relay = w.relay AND r.expires_at > ${moment}
  JOIN json_each(w.seqs) j`;
}

/** One entry per version, applied in order, never changed once released. */
const migrations: readonly string[] = [
  `
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
  lane            INTEGER CHECK (lane BETWEEN 0 AND ${LANES - 1}),
  created_at      TEXT NOT NULL DEFAULT (${now}),
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
CREATE INDEX outbox_pending ON outbox (lane, seq) WHERE ${pending};
CREATE INDEX outbox_delayed ON outbox (available_at) WHERE ${delayed};
CREATE INDEX outbox_failed ON outbox (next_attempt_at) WHERE status = 'FAILED';
CREATE INDEX outbox_blocked ON outbox (aggregate_type, aggregate_id, seq) WHERE status = 'BLOCKED';
CREATE INDEX outbox_dead ON outbox (seq) WHERE status = 'DEAD';
CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;

CREATE TABLE waybill_keys (
  key        TEXT PRIMARY KEY,
  event_id   TEXT NOT NULL,
  created_at TEXT NOT NULL DEFAULT (${now})
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
WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < ${LANES - 1})
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
CREATE VIEW outbox_events AS ${eventsAt(now)};
`,
  toVersion2,
  toVersion3,
];

export const SCHEMA_VERSION = migrations.length;

export function createSchema(connection: Connection, path: string): Schema {
  return {
    migrate: () =>
      connection.write((statements) => {
        const from = versionOf(statements);
        refuseNewer(path, from, SCHEMA_VERSION);
        const applied: number[] = [];
        for (let version = from + 1; version <= SCHEMA_VERSION; version++) {
          statements.exec(migrations[version - 1]!);
          applied.push(version);
        }
        if (from === 0) statements.exec("CREATE TABLE waybill_meta (version INTEGER NOT NULL); INSERT INTO waybill_meta VALUES (0)");
        statements.exec(`UPDATE waybill_meta SET version = ${SCHEMA_VERSION}`);
        return applied;
      }),
    print: (from = 0) =>
      [
        inOneTransaction,
        checkFrom(migrations, from).join("\n").trim(),
        ...(from === 0 ? ["CREATE TABLE waybill_meta (version INTEGER NOT NULL);", "INSERT INTO waybill_meta VALUES (0);"] : []),
        `UPDATE waybill_meta SET version = ${SCHEMA_VERSION};\n`,
      ].join("\n"),
    grants: () => "",
    check: () => connection.read((statements) => checkVersionOf(versionOf(statements), path)),
  };
}

export const checkVersionOf = (version: number, path: string): void => checkVersion(path, version, SCHEMA_VERSION, `sqlite:${path}`);

/** 0 when there are no tables. */
export function versionOf(statements: Pick<Statements, "get">): number {
  const table = statements.get("SELECT 1 AS found FROM sqlite_master WHERE type = 'table' AND name = 'waybill_meta'");
  return table === undefined ? 0 : Number(statements.get("SELECT version FROM waybill_meta")?.["version"] ?? 0);
}
