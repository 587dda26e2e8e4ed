-- Run all of it in one transaction, as migration tools do.
CREATE SCHEMA IF NOT EXISTS "public";
CREATE TABLE "public"."waybill_meta" (version integer NOT NULL, partitions text);
INSERT INTO "public"."waybill_meta" VALUES (0, NULL);
-- A transaction has its id before it draws a number. So whoever has seen all transactions end that were running when a number
-- had been drawn has seen every event up to that number: the proof behind the relay's floors. CACHE 1 for the same reason.
CREATE SEQUENCE "public"."waybill_seq" CACHE 1;
CREATE FUNCTION "public"."waybill_next_seq"() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $waybill$
BEGIN
  PERFORM pg_catalog.pg_current_xact_id();
  RETURN pg_catalog.nextval('"public"."waybill_seq"'::pg_catalog.regclass);
END $waybill$;
-- The lane of an aggregate, here and nowhere else. PostgreSQL's own hash functions may change with its version; SHA-256 does not.
CREATE FUNCTION "public"."waybill_lane"(aggregate_type text, aggregate_id text) RETURNS smallint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $waybill$
  SELECT (pg_catalog.get_byte(pg_catalog.sha256(pg_catalog.convert_to($1 OPERATOR(pg_catalog.||) pg_catalog.chr(31) OPERATOR(pg_catalog.||) $2, 'UTF8')), 0) OPERATOR(pg_catalog.%) 64)::smallint
$waybill$;
CREATE TABLE "public"."outbox" (
  seq             bigint NOT NULL DEFAULT "public"."waybill_next_seq"(),
  id              text COLLATE "C" NOT NULL DEFAULT pg_catalog.gen_random_uuid()::text,
  aggregate_type  text COLLATE "C" NOT NULL CHECK (aggregate_type <> ''),
  aggregate_id    text COLLATE "C" NOT NULL CHECK (aggregate_id <> ''),
  event_type      text COLLATE "C" NOT NULL CHECK (event_type <> ''),
  event_version   integer NOT NULL DEFAULT 1 CHECK (event_version >= 1),
  payload         text,
  payload_bytes   bytea,
  content_type    text NOT NULL DEFAULT 'application/json',
  headers         json NOT NULL DEFAULT '{}',
  idempotency_key text COLLATE "C",
  lane            smallint NOT NULL GENERATED ALWAYS AS ("public"."waybill_lane"(aggregate_type, aggregate_id)) STORED,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp()
                  CHECK (created_at >= '0001-01-01 00:00:00+00' AND created_at < '10000-01-01 00:00:00+00'),
  available_at    timestamptz,
  status          text COLLATE "C" NOT NULL DEFAULT 'PENDING'
                  CHECK (status IN ('PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED')),
  retry_count     integer NOT NULL DEFAULT 0,
  next_attempt_at timestamptz,
  last_error      text,
  published_at    timestamptz,
  CHECK ((payload IS NULL) <> (payload_bytes IS NULL)),
  PRIMARY KEY (seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX "outbox_id" ON "public"."outbox" (id);
-- Each scan of the relay has an index that holds only the rows it may find.
CREATE INDEX "outbox_pending" ON "public"."outbox" (lane, seq) WHERE status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL);
CREATE INDEX "outbox_delayed" ON "public"."outbox" (available_at) WHERE status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL;
CREATE INDEX "outbox_failed" ON "public"."outbox" (next_attempt_at) WHERE status = 'FAILED';
CREATE INDEX "outbox_blocked" ON "public"."outbox" (aggregate_type, aggregate_id, seq) WHERE status = 'BLOCKED';
CREATE INDEX "outbox_dead" ON "public"."outbox" (seq) WHERE status IN ('DEAD', 'DISCARDED');
CREATE INDEX "outbox_published" ON "public"."outbox" (published_at) WHERE status = 'PUBLISHED';

CREATE TABLE "public"."waybill_keys" (
  key        text COLLATE "C" PRIMARY KEY,
  event_id   text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX "waybill_keys_age" ON "public"."waybill_keys" (created_at);
-- A used key adds nothing, whoever inserts; with the owner's rights, so that a writer needs none on the keys.
CREATE FUNCTION "public"."waybill_use_key"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $waybill$
BEGIN
  INSERT INTO "public"."waybill_keys" (key, event_id) VALUES (NEW.idempotency_key, NEW.id) ON CONFLICT DO NOTHING;
  IF FOUND THEN RETURN NEW; END IF;
  RETURN NULL;
END $waybill$;
-- An event that only moves from one partition to another has used its key before.
CREATE TRIGGER waybill_key BEFORE INSERT ON "public"."outbox" FOR EACH ROW
WHEN (NEW.idempotency_key IS NOT NULL AND pg_catalog.current_setting('waybill.moving', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION "public"."waybill_use_key"();
-- What outbox.add calls: one statement and one parameter, whichever library carries it, under a role that may only insert.
CREATE FUNCTION "public"."waybill_add"(events json) RETURNS TABLE (id text, duplicate boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $waybill$
#variable_conflict use_column
DECLARE
  given text[] := ARRAY(SELECT e ->> 'idempotency_key' FROM json_array_elements(events) e WHERE e ->> 'idempotency_key' IS NOT NULL);
  used text[] := '{}';
BEGIN
  IF cardinality(given) > 0 THEN
    used := ARRAY(SELECT k.key FROM "public"."waybill_keys" k WHERE k.key = ANY (given));
  END IF;
  INSERT INTO "public"."outbox" (id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, available_at)
  SELECT e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.event_version, e.payload, decode(e.payload_bytes, 'base64'), e.content_type, e.headers, e.idempotency_key, e.available_at
  FROM ROWS FROM (json_to_recordset(events) AS (
    id text, aggregate_type text, aggregate_id text, event_type text, event_version integer, payload text, payload_bytes text,
    content_type text, headers json, idempotency_key text, available_at timestamptz)) WITH ORDINALITY AS e
  ORDER BY e.ordinality;
  IF cardinality(given) = 0 THEN
    RETURN;
  END IF;
  RETURN QUERY
  SELECT coalesce(k.event_id, e.id), k.key IS NOT NULL AND (k.key = ANY (used) OR k.event_id <> e.id)
  FROM ROWS FROM (json_to_recordset(events) AS (id text, idempotency_key text)) WITH ORDINALITY AS e
  LEFT JOIN "public"."waybill_keys" k ON k.key = e.idempotency_key
  ORDER BY e.ordinality;
END $waybill$;
REVOKE ALL ON FUNCTION "public"."waybill_add"(json) FROM PUBLIC;
REVOKE ALL ON FUNCTION "public"."waybill_use_key"() FROM PUBLIC;

CREATE TABLE "public"."waybill_relays" (
  relay      text COLLATE "C" PRIMARY KEY,
  started_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  "window"   integer NOT NULL DEFAULT 0,
  strategy   text
) WITH (fillfactor = 50);
-- These rows change when lanes change hands, and when an operator puts old events back into a lane (reopened).
CREATE TABLE "public"."waybill_lanes" (
  lane     smallint PRIMARY KEY,
  owner    text COLLATE "C",
  epoch    bigint NOT NULL DEFAULT 0,
  reopened bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO "public"."waybill_lanes" (lane) SELECT lane FROM generate_series(0, 63) AS lane;
CREATE TABLE "public"."waybill_windows" (
  "window"   text COLLATE "C" PRIMARY KEY,
  relay      text COLLATE "C" NOT NULL,
  width      integer NOT NULL,
  seqs       bigint[] NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE "public"."waybill_suspects" (
  seq            bigint PRIMARY KEY,
  lane           smallint NOT NULL,
  aggregate_type text COLLATE "C" NOT NULL,
  aggregate_id   text COLLATE "C" NOT NULL,
  width          integer NOT NULL,
  deaths         integer NOT NULL
);
CREATE INDEX "waybill_suspects_aggregate" ON "public"."waybill_suspects" (aggregate_type, aggregate_id);
CREATE TABLE "public"."waybill_holds" (
  aggregate_type text COLLATE "C" NOT NULL,
  aggregate_id   text COLLATE "C" NOT NULL,
  lane           smallint NOT NULL,
  cause_seq      bigint NOT NULL,
  destination    text COLLATE "C",
  why            text NOT NULL,
  since          timestamptz NOT NULL,
  free_to        bigint,
  PRIMARY KEY (aggregate_type, aggregate_id)
);
CREATE INDEX "waybill_holds_cause" ON "public"."waybill_holds" (cause_seq);
CREATE INDEX "waybill_holds_releasing" ON "public"."waybill_holds" (lane) WHERE free_to IS NOT NULL;
CREATE INDEX "waybill_holds_destination" ON "public"."waybill_holds" (destination, since) WHERE destination IS NOT NULL;
CREATE TABLE "public"."waybill_destinations" (
  destination text COLLATE "C" NOT NULL,
  lane        smallint NOT NULL,
  why         text NOT NULL,
  since       timestamptz NOT NULL,
  PRIMARY KEY (destination, lane)
);
CREATE TABLE "public"."waybill_audit" (
  at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  who    text NOT NULL,
  action text NOT NULL,
  events bigint NOT NULL,
  detail json NOT NULL
);

CREATE TABLE "public"."inbox" (
  consumer        text COLLATE "C" NOT NULL,
  event_id        text COLLATE "C" NOT NULL,
  processed_at    timestamptz NOT NULL,
  handler_version integer NOT NULL,
  PRIMARY KEY (consumer, event_id)
);
CREATE INDEX "inbox_age" ON "public"."inbox" (processed_at);
CREATE TABLE "public"."waybill_attempts" (
  consumer   text COLLATE "C" NOT NULL,
  event_id   text COLLATE "C" NOT NULL,
  attempts   integer NOT NULL,
  last_error text NOT NULL,
  failed_at  timestamptz NOT NULL,
  PRIMARY KEY (consumer, event_id)
);
CREATE TABLE "public"."waybill_seats" (
  consumer   text COLLATE "C" NOT NULL,
  topic      text COLLATE "C" NOT NULL,
  owner      text COLLATE "C" NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (consumer, topic)
);
-- What a person at a SQL prompt reads: the derived state, who publishes it, why it waits.
CREATE VIEW "public"."outbox_events" AS 
SELECT o.*,
       CASE WHEN w.relay IS NOT NULL AND o.status IN ('PENDING', 'FAILED') THEN 'PUBLISHING' ELSE o.status END AS state,
       o.status = 'PUBLISHED' AS published,
       w.relay AS owner,
       CASE WHEN o.status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') THEN h.why END AS hold
FROM "public"."outbox" o
LEFT JOIN "public"."waybill_holds" h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
LEFT JOIN (
  SELECT u.seq, w.relay, l.lane
  FROM "public"."waybill_windows" w
  JOIN "public"."waybill_relays" r ON r.relay = w.relay AND r.expires_at > clock_timestamp()
  JOIN "public"."waybill_lanes" l ON l.owner = w.relay
  CROSS JOIN LATERAL unnest(w.seqs) AS u (seq)
) w ON w.seq = o.seq AND w.lane = o.lane;
ALTER TABLE "public"."inbox" ADD COLUMN IF NOT EXISTS finished boolean NOT NULL DEFAULT true;
ALTER TABLE "public"."waybill_relays" ADD COLUMN IF NOT EXISTS ttl_ms double precision NOT NULL DEFAULT 10000,
  ADD COLUMN IF NOT EXISTS renewed_at timestamptz, ADD COLUMN IF NOT EXISTS renewals bigint NOT NULL DEFAULT 0;
ALTER TABLE "public"."waybill_seats" ADD COLUMN IF NOT EXISTS ttl_ms double precision NOT NULL DEFAULT 10000,
  ADD COLUMN IF NOT EXISTS renewed_at timestamptz, ADD COLUMN IF NOT EXISTS renewals bigint NOT NULL DEFAULT 0;
LOCK TABLE "public"."outbox" IN ACCESS EXCLUSIVE MODE;
-- Rows that are there stay as they are, and can be settled: the relay ends those DEAD that it cannot carry.
DO $waybill$
DECLARE
  last bigint := (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM "public"."waybill_seq");
BEGIN
  EXECUTE pg_catalog.format('ALTER TABLE "public"."outbox" ADD CONSTRAINT waybill_names CHECK (seq <= %s OR (pg_catalog.octet_length(id) BETWEEN 1 AND 255 AND pg_catalog.octet_length(aggregate_type) BETWEEN 1 AND 255 AND pg_catalog.octet_length(aggregate_id) BETWEEN 1 AND 255 AND pg_catalog.octet_length(event_type) BETWEEN 1 AND 255 AND pg_catalog.octet_length(idempotency_key) BETWEEN 1 AND 255)) NOT VALID', last);
  EXECUTE pg_catalog.format('ALTER TABLE "public"."outbox" ADD CONSTRAINT waybill_content_type CHECK (seq <= %s OR (content_type = ''application/json'' OR pg_catalog.octet_length(content_type) BETWEEN 1 AND 255 AND content_type COLLATE "C" ~ ''^[ -~]+$'')) NOT VALID', last);
  EXECUTE pg_catalog.format('ALTER TABLE "public"."outbox" ADD CONSTRAINT waybill_headers CHECK (seq <= %s OR (headers::pg_catalog.text = ''{}'' OR pg_catalog.json_typeof(headers) = ''object'' AND pg_catalog.octet_length(headers::pg_catalog.text) <= 131072
    AND (pg_catalog.octet_length(headers::pg_catalog.text) <= 4096
      OR pg_catalog.regexp_replace(headers::pg_catalog.text, ''"(?:[^"\\]|\\.)*"'', '''', ''g'') !~ ''[[{].*[[{]''))) NOT VALID', last);
  EXECUTE pg_catalog.format('ALTER TABLE "public"."outbox" ADD CONSTRAINT waybill_times CHECK (seq <= %s OR ((available_at IS NULL OR available_at = ''infinity'' OR available_at >= ''0001-01-01 00:00:00+00'' AND available_at < ''10000-01-01 00:00:00+00'') AND (next_attempt_at IS NULL OR next_attempt_at = ''infinity'' OR next_attempt_at >= ''0001-01-01 00:00:00+00'' AND next_attempt_at < ''10000-01-01 00:00:00+00'') AND (published_at IS NULL OR published_at = ''infinity'' OR published_at >= ''0001-01-01 00:00:00+00'' AND published_at < ''10000-01-01 00:00:00+00''))) NOT VALID', last);
  EXECUTE pg_catalog.format('ALTER TABLE "public"."outbox" ADD CONSTRAINT waybill_retries CHECK (seq <= %s OR (retry_count BETWEEN 0 AND 1000000000)) NOT VALID', last);
END $waybill$;
-- Whoever may act for the owner of the outbox: an insert-only role may set waybill.moving, and it counts for nothing.
CREATE FUNCTION "public"."waybill_moves"() RETURNS boolean LANGUAGE sql STABLE AS $waybill$
  SELECT pg_catalog.current_setting('waybill.moving', true) = 'on' AND pg_catalog.pg_has_role(
    (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) '"public"."outbox"'::pg_catalog.regclass), 'USAGE')
$waybill$;
-- A key that is found used is locked, so that it stays: no purge can forget it before the answer is given.
CREATE OR REPLACE FUNCTION "public"."waybill_use_key"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $waybill$
BEGIN
  LOOP
    INSERT INTO "public"."waybill_keys" (key, event_id) VALUES (NEW.idempotency_key, NEW.id) ON CONFLICT DO NOTHING;
    IF FOUND THEN RETURN NEW; END IF;
    PERFORM 1 FROM "public"."waybill_keys" k WHERE k.key = NEW.idempotency_key FOR KEY SHARE;
    IF FOUND THEN RETURN NULL; END IF;
  END LOOP;
END $waybill$;
DROP TRIGGER waybill_key ON "public"."outbox";
CREATE TRIGGER waybill_key BEFORE INSERT ON "public"."outbox" FOR EACH ROW
WHEN (NEW.idempotency_key IS NOT NULL AND (pg_catalog.current_setting('waybill.moving', true) IS DISTINCT FROM 'on' OR "public"."waybill_moves"() IS NOT TRUE))
EXECUTE FUNCTION "public"."waybill_use_key"();
-- What was inserted is new, and everything else is a duplicate.
CREATE OR REPLACE FUNCTION "public"."waybill_add"(events json) RETURNS TABLE (id text, duplicate boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $waybill$
#variable_conflict use_column
DECLARE
  added text[];
BEGIN
  WITH inserted AS (
    INSERT INTO "public"."outbox" (id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, available_at)
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
  LEFT JOIN "public"."waybill_keys" k ON k.key = e.idempotency_key
  ORDER BY e.ordinality;
END $waybill$;

CREATE TABLE "public"."waybill_letters" (
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
CREATE INDEX "waybill_letters_seq" ON "public"."waybill_letters" (seq);
ALTER TABLE "public"."waybill_letters" ADD COLUMN IF NOT EXISTS whole smallint NOT NULL DEFAULT 1,
  ADD COLUMN IF NOT EXISTS error_detail text NOT NULL DEFAULT '', ADD COLUMN IF NOT EXISTS redriven_at timestamptz;
ALTER TABLE "public"."outbox" ADD COLUMN IF NOT EXISTS error_code text COLLATE "C", ADD COLUMN IF NOT EXISTS error_detail text;
-- Letters that were cut say so in their error until now.
-- Attempts are counted from zero once a letter is redriven.
DELETE FROM "public"."waybill_attempts" a USING "public"."waybill_letters" l WHERE l.consumer = a.consumer AND l.id = a.event_id;
UPDATE "public"."waybill_letters" SET whole = 0 WHERE error LIKE '%(the inbox did not take its %';
CREATE INDEX "waybill_letters_redriven" ON "public"."waybill_letters" (consumer, topic, seq) WHERE redriven_at IS NOT NULL;
-- The same columns as before, and the new ones at the end, so that rights on the view stay.
CREATE OR REPLACE VIEW "public"."outbox_events" AS
SELECT o.seq, o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version, o.payload, o.payload_bytes, o.content_type, o.headers,
       o.idempotency_key, o.lane, o.created_at, o.available_at, o.status, o.retry_count, o.next_attempt_at, o.last_error, o.published_at,
       CASE WHEN w.relay IS NOT NULL AND o.status IN ('PENDING', 'FAILED') THEN 'PUBLISHING' ELSE o.status END AS state,
       o.status = 'PUBLISHED' AS published,
       w.relay AS owner,
       CASE WHEN o.status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') THEN h.why END AS hold,
       o.error_code, o.error_detail
FROM "public"."outbox" o
LEFT JOIN "public"."waybill_holds" h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
LEFT JOIN (
  SELECT u.seq, w.relay, l.lane
  FROM "public"."waybill_windows" w
  JOIN "public"."waybill_relays" r ON r.relay = w.relay AND r.expires_at > clock_timestamp()
  JOIN "public"."waybill_lanes" l ON l.owner = w.relay
  CROSS JOIN LATERAL unnest(w.seqs) AS u (seq)
) w ON w.seq = o.seq AND w.lane = o.lane;
-- Whoever may write an error may write all of it.
DO $waybill$
DECLARE
  holder record;
BEGIN
  FOR holder IN SELECT DISTINCT x.grantee AS role FROM pg_catalog.pg_attribute a, pg_catalog.aclexplode(a.attacl) x
    WHERE a.attrelid = '"public"."outbox"'::pg_catalog.regclass AND a.attname = 'last_error' AND x.privilege_type = 'UPDATE'
  LOOP
    EXECUTE pg_catalog.format('GRANT UPDATE (error_code, error_detail) ON "public"."outbox" TO %s',
      CASE holder.role WHEN 0 THEN 'PUBLIC' ELSE holder.role::pg_catalog.regrole::text END);
  END LOOP;
END $waybill$;
UPDATE "public"."waybill_meta" SET version = 3;
