import { maxMarkBytes } from "../../core/letter.ts";
import { maxHeadersText } from "../kit/stored.ts";
import { delayed, unlaned } from "./predicates.ts";

/** AUTOINCREMENT continues from the highest seq ever written. Beyond 2^53 JavaScript cannot distinguish two seqs. */
const lastSeq = 2 ** 52;

/** Uses no function that is newer than SQLite 3.38: other programs' SQLite libraries run this too. */
const isName = (column: string): string =>
  `typeof(${column}) = 'text' AND length(CAST(${column} AS BLOB)) BETWEEN 1 AND ${maxMarkBytes} AND instr(${column}, char(0)) = 0`;
const isDate = (column: string): string =>
  `typeof(${column}) = 'text' AND ${column} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(${column}) IS NOT NULL`;
const orNull = (column: string, rule: (column: string) => string): string => `(${column} IS NULL OR ${rule(column)})`;

/** What is checked of a row, each with the error for its writer. */
const rules: readonly (readonly [holds: string, told: string])[] = [
  [isName("NEW.id"), `id must be text of 1 to ${maxMarkBytes} bytes without NUL`],
  [isName("NEW.aggregate_type"), `aggregate_type must be text of 1 to ${maxMarkBytes} bytes without NUL`],
  [isName("NEW.aggregate_id"), `aggregate_id must be text of 1 to ${maxMarkBytes} bytes without NUL`],
  [isName("NEW.event_type"), `event_type must be text of 1 to ${maxMarkBytes} bytes without NUL`],
  [
    "typeof(NEW.event_version) = 'integer' AND NEW.event_version BETWEEN 1 AND 2147483647",
    "event_version must be a whole number from 1 to 2147483647",
  ],
  ["(NEW.payload IS NULL) <> (NEW.payload_bytes IS NULL)", "an event has either payload or payload_bytes"],
  [
    `${isName("NEW.content_type")} AND NEW.content_type NOT GLOB '*[^ -~]*'`,
    `content_type must be 1 to ${maxMarkBytes} printable ASCII characters`,
  ],
  [
    `(NEW.headers = '{}' OR typeof(NEW.headers) = 'text' AND length(CAST(NEW.headers AS BLOB)) <= ${maxHeadersText}
      AND instr(NEW.headers, char(0)) = 0 AND CASE WHEN json_valid(NEW.headers) THEN json_type(NEW.headers) = 'object' ELSE 0 END)`,
    `headers must be a JSON object of ${maxHeadersText} bytes at most`,
  ],
  [orNull("NEW.idempotency_key", isName), `idempotency_key must be text of 1 to ${maxMarkBytes} bytes without NUL`],
  [isDate("NEW.created_at"), "created_at must be a date such as 2026-01-31T23:59:59.000Z"],
  [orNull("NEW.available_at", isDate), "available_at must be a date such as 2026-01-31T23:59:59.000Z"],
  [
    "typeof(NEW.retry_count) = 'integer' AND NEW.retry_count BETWEEN 0 AND 2147483647",
    "retry_count must be a whole number from 0 to 2147483647",
  ],
  [
    `${orNull("NEW.next_attempt_at", isDate)} AND (NEW.status <> 'FAILED' OR NEW.next_attempt_at IS NOT NULL)`,
    "next_attempt_at must be a date, and a FAILED event must have one",
  ],
  [
    `${orNull("NEW.published_at", isDate)} AND (NEW.status <> 'PUBLISHED' OR NEW.published_at IS NOT NULL)`,
    "published_at must be a date, and a PUBLISHED event must have one",
  ],
  ["NEW.status IN ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED')", "status must be left out"],
  [`(NEW.seq = -1 OR NEW.seq BETWEEN 1 AND ${lastSeq})`, "seq must be left out"],
];

type Rules = typeof rules;
/** Only checked of a new row: relays fill the lane in. */
const ofNew: Rules = [["NEW.lane IS NULL", "lane must be left out"]];

/** Checks all rules at once, and looks for the broken rule only when there is one. */
const checked = (those: Rules): string => `WHEN NOT (
  ${those.map(([holds]) => holds).join("\n  AND ")})
BEGIN
${those.map(([holds, told]) => `  SELECT RAISE(ABORT, 'waybill constraint: ${told}') WHERE NOT (${holds});`).join("\n")}
END`;

/**
 * Triggers refuse rows that cannot be carried. A CHECK could only be added by rewriting the whole table, and all writers would wait for
 * that. Besides, INSERT OR IGNORE silently skips a row that violates a CHECK, but still fails on RAISE(ABORT).
 *
 * Existing rows become claims that say what is wrong with them. Only rows that no claim would ever reach are repaired here.
 */
export const toVersion2 = `
-- A seq at the end of its range stops every later insert.
UPDATE outbox SET seq = last.seq + far.n
FROM (SELECT seq, row_number() OVER (ORDER BY seq) AS n FROM outbox WHERE seq > ${lastSeq}) AS far,
     (SELECT coalesce(max(seq), 0) AS seq FROM outbox WHERE seq <= ${lastSeq}) AS last
WHERE outbox.seq = far.seq;
UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(seq), 0) FROM outbox) WHERE name = 'outbox' AND seq > ${lastSeq};
UPDATE outbox SET next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE status = 'FAILED' AND (next_attempt_at IS NULL OR NOT (${isDate("next_attempt_at")}));
UPDATE outbox SET status = 'DEAD', last_error = 'ROW_UNREADABLE: available_at is not a date'
WHERE ${delayed} AND NOT (${isDate("available_at")});

CREATE TRIGGER outbox_carried BEFORE INSERT ON outbox ${checked([...rules, ...ofNew])};
CREATE TRIGGER outbox_carried_still BEFORE UPDATE OF
  id, aggregate_type, aggregate_id, event_type, event_version, content_type, headers, idempotency_key, created_at, available_at
ON outbox ${checked(rules)};
DROP INDEX outbox_unlaned;
CREATE INDEX outbox_unlaned ON outbox (seq) WHERE ${unlaned};
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
`;
