import { literal, type Names } from "./names.ts";

/** Headers of this many bytes cannot be nested too deeply for `JSON.stringify`, whatever is in them. */
const shallowBytes = 4_096;
/** As `kit/stored.ts` has it. */
const headersBytes = 131_072;

const text = "headers::pg_catalog.text";
const name = (column: string): string => `pg_catalog.octet_length(${column}) BETWEEN 1 AND 255`;
const moment = (column: string): string =>
  `(${column} IS NULL OR ${column} = 'infinity' OR ${column} >= '0001-01-01 00:00:00+00' AND ${column} < '10000-01-01 00:00:00+00')`;

/** An insert that breaks a rule is refused: no relay could carry the row, and `kit/stored.ts` would call it unreadable. */
const rules: Readonly<Record<string, string>> = {
  waybill_names: ["id", "aggregate_type", "aggregate_id", "event_type", "idempotency_key"].map(name).join(" AND "),
  waybill_content_type: `content_type = 'application/json' OR ${name("content_type")} AND content_type COLLATE "C" ~ '^[ -~]+$'`,
  // The cheap questions first: nearly all headers are empty, or short.
  waybill_headers: `${text} = '{}' OR pg_catalog.json_typeof(headers) = 'object' AND pg_catalog.octet_length(${text}) <= ${headersBytes}
    AND (pg_catalog.octet_length(${text}) <= ${shallowBytes}
      OR pg_catalog.regexp_replace(${text}, '"(?:[^"\\\\]|\\\\.)*"', '', 'g') !~ '[[{].*[[{]')`,
  waybill_times: ["available_at", "next_attempt_at", "published_at"].map(moment).join(" AND "),
  waybill_retries: "retry_count BETWEEN 0 AND 1000000000",
};

/** Each in its own transaction: a subscriber that applies an event locks the inbox first and the outbox later. */
export const columns = (n: Names): readonly string[] => [
  // Existing marks count as finished, and so do marks that code of version 1 writes.
  `ALTER TABLE ${n.inbox} ADD COLUMN IF NOT EXISTS finished boolean NOT NULL DEFAULT true`,
  ...[n.relays, n.seats].map(
    (table) => `ALTER TABLE ${table} ADD COLUMN IF NOT EXISTS ttl_ms double precision NOT NULL DEFAULT 10000,
  ADD COLUMN IF NOT EXISTS renewed_at timestamptz, ADD COLUMN IF NOT EXISTS renewals bigint NOT NULL DEFAULT 0`,
  ),
];

/** The outbox is locked for a moment, and no row of it is read or written. */
export const version2 = (n: Names): string => `
LOCK TABLE ${n.outbox} IN ACCESS EXCLUSIVE MODE;
-- Rows that are there stay as they are, and can be settled: the relay ends those DEAD that it cannot carry.
DO $waybill$
DECLARE
  last bigint := (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM ${n.seq});
BEGIN
${Object.entries(rules)
  .map(
    ([rule, check]) =>
      `  EXECUTE pg_catalog.format(${literal(`ALTER TABLE ${percent(n.outbox)} ADD CONSTRAINT ${rule} CHECK (seq <= %s OR (${percent(check)})) NOT VALID`)}, last);`,
  )
  .join("\n")}
END $waybill$;
-- Whoever may act for the owner of the outbox: an insert-only role may set waybill.moving, and it counts for nothing.
CREATE FUNCTION ${n.moves}() RETURNS boolean LANGUAGE sql STABLE AS $waybill$
  SELECT pg_catalog.current_setting('waybill.moving', true) = 'on' AND pg_catalog.pg_has_role(
    (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) ${literal(n.outbox)}::pg_catalog.regclass), 'USAGE')
$waybill$;
-- A key that is found used is locked, so that it stays: no purge can forget it before the answer is given.
CREATE OR REPLACE FUNCTION ${n.use_key}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $waybill$
BEGIN
  LOOP
    INSERT INTO ${n.keys} (key, event_id) VALUES (NEW.idempotency_key, NEW.id) ON CONFLICT DO NOTHING;
    IF FOUND THEN RETURN NEW; END IF;
    PERFORM 1 FROM ${n.keys} k WHERE k.key = NEW.idempotency_key FOR KEY SHARE;
    IF FOUND THEN RETURN NULL; END IF;
  END LOOP;
END $waybill$;
DROP TRIGGER waybill_key ON ${n.outbox};
CREATE TRIGGER waybill_key BEFORE INSERT ON ${n.outbox} FOR EACH ROW
WHEN (NEW.idempotency_key IS NOT NULL AND (pg_catalog.current_setting('waybill.moving', true) IS DISTINCT FROM 'on' OR ${n.moves}() IS NOT TRUE))
EXECUTE FUNCTION ${n.use_key}();
-- What was inserted is new, and everything else is a duplicate.
CREATE OR REPLACE FUNCTION ${n.add}(events json) RETURNS TABLE (id text, duplicate boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $waybill$
#variable_conflict use_column
DECLARE
  added text[];
BEGIN
  WITH inserted AS (
    INSERT INTO ${n.outbox} (id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, available_at)
    SELECT e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.event_version, e.payload, decode(e.payload_bytes, 'base64'), e.content_type, e.headers, e.idempotency_key, e.available_at
    FROM ROWS FROM (json_to_recordset(events) AS (
      id text, aggregate_type text, aggregate_id text, event_type text, event_version integer, payload text, payload_bytes text,
      content_type text, headers json, idempotency_key text, available_at timestamptz)) WITH ORDINALITY AS e
    ORDER BY e.ordinality
    RETURNING id, idempotency_key)
  SELECT array_agg(i.id) FILTER (WHERE i.idempotency_key IS NOT NULL) INTO added FROM inserted i;
  IF added IS NULL AND NOT EXISTS (SELECT 1 FROM json_array_elements(events) e WHERE e ->> 'idempotency_key' IS NOT NULL) THEN
    RETURN;
  END IF;
  RETURN QUERY
  SELECT coalesce(k.event_id, e.id), e.idempotency_key IS NOT NULL AND (added IS NULL OR e.id <> ALL (added))
  FROM ROWS FROM (json_to_recordset(events) AS (id text, idempotency_key text)) WITH ORDINALITY AS e
  LEFT JOIN ${n.keys} k ON k.key = e.idempotency_key
  ORDER BY e.ordinality;
END $waybill$;

CREATE TABLE ${n.letters} (
  seq             bigint GENERATED ALWAYS AS IDENTITY,
  consumer        text COLLATE "C" NOT NULL,
  topic           text COLLATE "C" NOT NULL,
  id              text COLLATE "C" NOT NULL,
  digest          text COLLATE "C" NOT NULL,
  aggregate_type  text COLLATE "C" NOT NULL,
  aggregate_id    text COLLATE "C" NOT NULL,
  event_type      text COLLATE "C" NOT NULL,
  envelope        text NOT NULL,
  data            bytea NOT NULL,
  raw             bytea,
  error_code      text COLLATE "C" NOT NULL,
  error           text NOT NULL,
  attempts        integer NOT NULL,
  handler_version integer NOT NULL,
  parked_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer, topic, id, digest)
);
CREATE INDEX ${n.index("letters", "seq")} ON ${n.letters} (seq);
`;

/** Escapes SQL for a string that `format` reads. */
function percent(sql: string): string {
  return sql.replaceAll("%", "%%");
}
