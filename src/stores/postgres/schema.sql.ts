import type { PartitionUnit } from "../kit/schema.ts";
import { literal, type Names } from "./names.ts";

/**
 * Version 1: every table, index, function, trigger and view, from top to bottom. Only names are substituted, and the layout of the outbox:
 * one table, or partitions by day, week or month.
 *
 * Once this version is released, its text never changes: a change is a new version.
 *
 * Functions and operators are found in the schemas of the session's search path, and on some databases every role may create functions
 * there. So each function below either sets its own search path, or qualifies all that it calls. A path costs each call some microseconds,
 * so the functions that run once per event qualify.
 */
export const version1 = (n: Names, unit: PartitionUnit | null): string => `
${tablesOfEvents(n, unit)}
${tablesOfRelays(n)}
${tablesOfSubscribers(n)}
${view(n)}
${claiming(n)}
${settling(n)}
${applying(n)}
${unit === null ? "" : partitions(n)}
-- Every role runs these with its own rights, also where functions are granted to nobody by default.
GRANT EXECUTE ON FUNCTION ${n.lane}(text, text), ${n.moves}(), ${n.check}, ${n.claim}, ${n.settle}, ${n.mark}, ${n.finish} TO PUBLIC;
REVOKE ALL ON FUNCTION ${n.add}(json) FROM PUBLIC;
REVOKE ALL ON FUNCTION ${n.use_key}() FROM PUBLIC;${
  unit === null
    ? ""
    : `
REVOKE ALL ON FUNCTION ${n.add_partitions}(integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION ${n.drop_partition}(timestamptz, boolean, text[]) FROM PUBLIC;`
}
`;

/**
 * Of the tables that hold events. If a settled row stays on its page, the WAL gets only what changed; otherwise it gets the whole row. In
 * return, events take more space: docs/decisions/0025 has the figures.
 */
const storage =
  "WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000, autovacuum_analyze_scale_factor = 0.05)";

/**
 * Most of an insert's cost is in the expressions of constraints, triggers and generated columns: PostgreSQL reads, plans and prepares them
 * again for each statement. PL/pgSQL keeps the plans of its expressions for the session, so everything is in PL/pgSQL functions.
 */
const tablesOfEvents = (n: Names, unit: PartitionUnit | null): string => `-- Which version of the tables this is, and which text made it.
CREATE TABLE ${n.meta} (
  version     integer NOT NULL,
  fingerprint text NOT NULL,
  partitions  text
);

CREATE SEQUENCE ${n.seq} CACHE 1;
-- The lane of an aggregate, here and nowhere else. PostgreSQL's own hash functions may change with its version; SHA-256 does not.
CREATE FUNCTION ${n.lane}(aggregate_type text, aggregate_id text) RETURNS smallint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $waybill$
BEGIN
  RETURN (pg_catalog.get_byte(pg_catalog.sha256(pg_catalog.convert_to(
    $1 OPERATOR(pg_catalog.||) pg_catalog.chr(31) OPERATOR(pg_catalog.||) $2, 'UTF8')), 0) OPERATOR(pg_catalog.%) 64)::smallint;
END $waybill$;
-- True, or the error of a constraint, which has the name of the rule. It refuses what no relay can carry.
CREATE FUNCTION ${n.check}(one_payload boolean, id text, aggregate_type text, aggregate_id text, event_type text, event_version integer,
  content_type text, headers json, idempotency_key text, created_at timestamptz, available_at timestamptz, status text, retry_count integer,
  next_attempt_at timestamptz, published_at timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $waybill$
DECLARE
  refused pg_catalog.text;
BEGIN
  refused := CASE
    WHEN NOT one_payload
      THEN 'waybill_payload: Exactly one of payload and payload_bytes must be set.'
    WHEN NOT event_version OPERATOR(pg_catalog.>=) 1
      THEN 'waybill_version: event_version is at least 1.'
    WHEN NOT (created_at OPERATOR(pg_catalog.>=) '0001-01-01 00:00:00+00' AND created_at OPERATOR(pg_catalog.<) '10000-01-01 00:00:00+00')
      THEN 'waybill_times: created_at is of the years 1 to 9999.'
    WHEN NOT status OPERATOR(pg_catalog.=) ANY (ARRAY['PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED'])
      THEN 'waybill_status: status is one of PENDING, PUBLISHED, FAILED, BLOCKED, DEAD and DISCARDED.'
    WHEN NOT aggregate_type OPERATOR(pg_catalog.<>) ''
      THEN 'waybill_names: aggregate_type must not be empty.'
    WHEN NOT aggregate_id OPERATOR(pg_catalog.<>) ''
      THEN 'waybill_names: aggregate_id must not be empty.'
    WHEN NOT event_type OPERATOR(pg_catalog.<>) ''
      THEN 'waybill_names: event_type must not be empty.'
    WHEN NOT (pg_catalog.octet_length(id) OPERATOR(pg_catalog.>=) 1 AND pg_catalog.octet_length(id) OPERATOR(pg_catalog.<=) 255)
      THEN 'waybill_names: id takes 1 to 255 bytes.'
    WHEN NOT pg_catalog.octet_length(aggregate_type) OPERATOR(pg_catalog.<=) 255
      THEN 'waybill_names: aggregate_type takes 1 to 255 bytes.'
    WHEN NOT pg_catalog.octet_length(aggregate_id) OPERATOR(pg_catalog.<=) 255
      THEN 'waybill_names: aggregate_id takes 1 to 255 bytes.'
    WHEN NOT pg_catalog.octet_length(event_type) OPERATOR(pg_catalog.<=) 255
      THEN 'waybill_names: event_type takes 1 to 255 bytes.'
    WHEN NOT (idempotency_key IS NULL
        OR pg_catalog.octet_length(idempotency_key) OPERATOR(pg_catalog.>=) 1 AND pg_catalog.octet_length(idempotency_key) OPERATOR(pg_catalog.<=) 255)
      THEN 'waybill_names: idempotency_key takes 1 to 255 bytes.'
    WHEN NOT (content_type OPERATOR(pg_catalog.=) 'application/json'
        OR pg_catalog.octet_length(content_type) OPERATOR(pg_catalog.>=) 1 AND pg_catalog.octet_length(content_type) OPERATOR(pg_catalog.<=) 255
          AND content_type OPERATOR(pg_catalog.~) '^[ -~]+$')
      THEN 'waybill_content_type: content_type takes 1 to 255 printable ASCII characters.'
    -- The cheap questions first: nearly all headers are empty, or short, and long ones are refused unread. Headers of at most 4096 bytes
    -- cannot be nested too deeply for a program that reads them. An E literal, because without E the session decides what a backslash means.
    WHEN NOT (headers::pg_catalog.text OPERATOR(pg_catalog.=) '{}'
        OR pg_catalog.octet_length(headers::pg_catalog.text) OPERATOR(pg_catalog.<=) 16384
          AND pg_catalog.json_typeof(headers) OPERATOR(pg_catalog.=) 'object'
          AND (pg_catalog.octet_length(headers::pg_catalog.text) OPERATOR(pg_catalog.<=) 4096
            OR pg_catalog.regexp_replace(headers::pg_catalog.text, E'"(?:[^"\\\\\\\\]|\\\\\\\\.)*"', '', 'g') OPERATOR(pg_catalog.!~) '[[{].*[[{]'))
      THEN 'waybill_headers: headers is a JSON object of at most 16384 bytes, beyond 4096 without nested values.'
    WHEN NOT ((available_at IS NULL OR available_at OPERATOR(pg_catalog.=) 'infinity'
          OR available_at OPERATOR(pg_catalog.>=) '0001-01-01 00:00:00+00' AND available_at OPERATOR(pg_catalog.<) '10000-01-01 00:00:00+00')
        AND (next_attempt_at IS NULL OR next_attempt_at OPERATOR(pg_catalog.=) 'infinity'
          OR next_attempt_at OPERATOR(pg_catalog.>=) '0001-01-01 00:00:00+00' AND next_attempt_at OPERATOR(pg_catalog.<) '10000-01-01 00:00:00+00')
        AND (published_at IS NULL OR published_at OPERATOR(pg_catalog.=) 'infinity'
          OR published_at OPERATOR(pg_catalog.>=) '0001-01-01 00:00:00+00' AND published_at OPERATOR(pg_catalog.<) '10000-01-01 00:00:00+00'))
      THEN 'waybill_times: available_at, next_attempt_at and published_at are of the years 1 to 9999, or infinity.'
    WHEN NOT (retry_count OPERATOR(pg_catalog.>=) 0 AND retry_count OPERATOR(pg_catalog.<=) 1000000000)
      THEN 'waybill_retries: retry_count is 0 to 1000000000.'
  END;
  IF refused IS NULL THEN
    RETURN true;
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = ${literal(n.plain("outbox"))}, CONSTRAINT = pg_catalog.split_part(refused, ': ', 1),
    MESSAGE = pg_catalog.format('the outbox refuses this event (%s)', refused);
END $waybill$;

-- A transaction has its id before it draws a number: CASE evaluates its condition first. So whoever has seen all transactions end that were
-- running when a number had been drawn has seen every event up to that number: the proof behind the relay's floors. CACHE 1 for the same reason.
CREATE TABLE ${n.outbox} (
  seq             bigint NOT NULL
                  DEFAULT CASE WHEN pg_catalog.pg_current_xact_id() IS NULL THEN NULL ELSE pg_catalog.nextval(${literal(n.seq)}::pg_catalog.regclass) END,
  id              text COLLATE "C" NOT NULL DEFAULT pg_catalog.gen_random_uuid()::text,
  aggregate_type  text COLLATE "C" NOT NULL,
  aggregate_id    text COLLATE "C" NOT NULL,
  event_type      text COLLATE "C" NOT NULL,
  event_version   integer NOT NULL DEFAULT 1,
  payload         text,
  payload_bytes   bytea,
  content_type    text NOT NULL DEFAULT 'application/json',
  headers         json NOT NULL DEFAULT '{}',
  idempotency_key text COLLATE "C",
  lane            smallint NOT NULL GENERATED ALWAYS AS (${n.lane}(aggregate_type, aggregate_id)) STORED,
  created_at      timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  available_at    timestamptz,
  status          text COLLATE "C" NOT NULL DEFAULT 'PENDING',
  retry_count     integer NOT NULL DEFAULT 0,
  next_attempt_at timestamptz,
  last_error      text,
  published_at    timestamptz,
  error_code      text COLLATE "C",
  error_detail    text,
  PRIMARY KEY (${unit === null ? "seq" : "seq, created_at"}),
  CONSTRAINT waybill_row CHECK (${n.check}((payload IS NULL) <> (payload_bytes IS NULL), id, aggregate_type, aggregate_id, event_type, event_version,
    content_type COLLATE "C", headers, idempotency_key, created_at, available_at, status, retry_count, next_attempt_at, published_at))
) ${unit === null ? storage : "PARTITION BY RANGE (created_at)"};
CREATE ${unit === null ? "UNIQUE " : ""}INDEX ${n.index("outbox", "id")} ON ${n.outbox} (id);
-- Each scan of the relay has an index that holds only the rows it may find. A delayed event has a next_attempt_at once it has become available.
CREATE INDEX ${n.index("outbox", "pending")} ON ${n.outbox} (lane, seq) WHERE status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL);
-- Without the log's events: see the table of the tail below.
CREATE INDEX ${n.index("outbox", "detour")} ON ${n.outbox} (lane, seq) WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL;
CREATE INDEX ${n.index("outbox", "detour_of")} ON ${n.outbox} (aggregate_type, aggregate_id)
  WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL AND octet_length(aggregate_type) <= 255 AND octet_length(aggregate_id) <= 255;
CREATE INDEX ${n.index("outbox", "delayed")} ON ${n.outbox} (available_at) WHERE status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL;
CREATE INDEX ${n.index("outbox", "failed")} ON ${n.outbox} (next_attempt_at) WHERE status = 'FAILED';
CREATE INDEX ${n.index("outbox", "blocked")} ON ${n.outbox} (aggregate_type, aggregate_id, seq) WHERE status = 'BLOCKED';
CREATE INDEX ${n.index("outbox", "dead")} ON ${n.outbox} (seq) WHERE status IN ('DEAD', 'DISCARDED');
CREATE INDEX ${n.index("outbox", "published")} ON ${n.outbox} (published_at) WHERE status = 'PUBLISHED';

CREATE TABLE ${n.keys} (
  key        text COLLATE "C" PRIMARY KEY,
  event_id   text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
CREATE INDEX ${n.index("keys", "age")} ON ${n.keys} (created_at);
-- Whoever may act for the owner of the outbox: an insert-only role may set waybill.moving, and it counts for nothing.
CREATE FUNCTION ${n.moves}() RETURNS boolean LANGUAGE plpgsql STABLE AS $waybill$
BEGIN
  RETURN pg_catalog.current_setting('waybill.moving', true) OPERATOR(pg_catalog.=) 'on' AND pg_catalog.pg_has_role(
    (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) ${literal(n.outbox)}::pg_catalog.regclass), 'USAGE');
END $waybill$;
-- A used key adds nothing, whoever inserts; with the owner's rights, so that a writer needs none on the keys. A key that is found used is
-- locked, so that it stays: no purge can forget it before the answer is given.
CREATE FUNCTION ${n.use_key}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $waybill$
BEGIN
  LOOP
    INSERT INTO ${n.keys} (key, event_id) VALUES (NEW.idempotency_key, NEW.id) ON CONFLICT DO NOTHING;
    IF FOUND THEN RETURN NEW; END IF;
    PERFORM 1 FROM ${n.keys} k WHERE k.key = NEW.idempotency_key FOR KEY SHARE;
    IF FOUND THEN RETURN NULL; END IF;
  END LOOP;
END $waybill$;
-- An event that only moves from one partition to another has used its key before.
CREATE TRIGGER waybill_key BEFORE INSERT ON ${n.outbox} FOR EACH ROW
WHEN (NEW.idempotency_key IS NOT NULL AND ${n.moves}() IS NOT TRUE)
EXECUTE FUNCTION ${n.use_key}();
-- What outbox.add calls: one statement and one parameter, whichever library carries it, under a role that may only insert. What was
-- inserted is new, and everything else is a duplicate.
CREATE FUNCTION ${n.add}(events json) RETURNS TABLE (id text, duplicate boolean)
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
`;

const tablesOfRelays = (n: Names): string => `-- The relays that run, or ran.
CREATE TABLE ${n.relays} (
  relay      text COLLATE "C" PRIMARY KEY,
  started_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  "window"   integer NOT NULL DEFAULT 0,
  strategy   text,
  ttl_ms     double precision NOT NULL DEFAULT 10000,
  renewed_at timestamptz,
  renewals   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
-- These rows change when lanes change hands, and when an operator puts old events back into a lane (reopened).
CREATE TABLE ${n.lanes} (
  lane     smallint PRIMARY KEY,
  owner    text COLLATE "C",
  epoch    bigint NOT NULL DEFAULT 0,
  reopened bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO ${n.lanes} (lane) SELECT lane FROM pg_catalog.generate_series(0, 63) AS lane;
-- One row: what a relay has published that reads the database's log. An event is the log's for as long as its row is as it was inserted, which is
-- PENDING without available_at and next_attempt_at. Any other row is the table's. Of the log's events, all up to the floor are published, although
-- their rows say PENDING; the view knows. The epoch rises whenever a lane changes hands. The position is left behind by an orderly end.
CREATE TABLE ${n.tail} (
  owner    text COLLATE "C",
  epoch    bigint NOT NULL DEFAULT 0,
  floor    bigint NOT NULL DEFAULT 0,
  system   text,
  position text,
  at       timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (fillfactor = 50);
INSERT INTO ${n.tail} DEFAULT VALUES;
-- When the floor was where: the time at which the log's events were published.
CREATE TABLE ${n.tail_marks} (
  floor bigint PRIMARY KEY,
  at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
-- What the relays have claimed, and not settled.
CREATE TABLE ${n.windows} (
  "window"   text COLLATE "C" PRIMARY KEY,
  relay      text COLLATE "C" NOT NULL,
  width      integer NOT NULL,
  seqs       bigint[] NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Events that a relay had claimed when it died.
CREATE TABLE ${n.suspects} (
  seq            bigint PRIMARY KEY,
  lane           smallint NOT NULL,
  aggregate_type text COLLATE "C" NOT NULL,
  aggregate_id   text COLLATE "C" NOT NULL,
  width          integer NOT NULL,
  deaths         integer NOT NULL
);
CREATE INDEX ${n.index("suspects", "aggregate")} ON ${n.suspects} (aggregate_type, aggregate_id);
-- The aggregates that wait, and the event or the topic that they wait for.
CREATE TABLE ${n.holds} (
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
CREATE INDEX ${n.index("holds", "cause")} ON ${n.holds} (cause_seq);
CREATE INDEX ${n.index("holds", "releasing")} ON ${n.holds} (lane) WHERE free_to IS NOT NULL;
CREATE INDEX ${n.index("holds", "destination")} ON ${n.holds} (destination, since) WHERE destination IS NOT NULL;
CREATE TABLE ${n.destinations} (
  destination text COLLATE "C" NOT NULL,
  lane        smallint NOT NULL,
  why         text NOT NULL,
  since       timestamptz NOT NULL,
  PRIMARY KEY (destination, lane)
);
-- What operators did.
CREATE TABLE ${n.audit} (
  at     timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  who    text NOT NULL,
  action text NOT NULL,
  events bigint NOT NULL,
  detail json NOT NULL
);
`;

const tablesOfSubscribers = (n: Names): string => `-- The events that each consumer has applied.
CREATE TABLE ${n.inbox} (
  consumer        text COLLATE "C" NOT NULL,
  event_id        text COLLATE "C" NOT NULL,
  processed_at    timestamptz NOT NULL,
  handler_version integer NOT NULL,
  finished        boolean NOT NULL DEFAULT true,
  PRIMARY KEY (consumer, event_id)
);
CREATE INDEX ${n.index("inbox", "age")} ON ${n.inbox} (processed_at);
CREATE TABLE ${n.attempts} (
  consumer   text COLLATE "C" NOT NULL,
  event_id   text COLLATE "C" NOT NULL,
  attempts   integer NOT NULL,
  last_error text NOT NULL,
  failed_at  timestamptz NOT NULL,
  PRIMARY KEY (consumer, event_id)
);
CREATE TABLE ${n.seats} (
  consumer   text COLLATE "C" NOT NULL,
  topic      text COLLATE "C" NOT NULL,
  owner      text COLLATE "C" NOT NULL,
  expires_at timestamptz NOT NULL,
  ttl_ms     double precision NOT NULL DEFAULT 10000,
  renewed_at timestamptz,
  renewals   bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (consumer, topic)
);
-- Messages that a consumer could not apply.
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
  parked_at       timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  whole           smallint NOT NULL DEFAULT 1,
  error_detail    text NOT NULL DEFAULT '',
  redriven_at     timestamptz,
  PRIMARY KEY (consumer, topic, id, digest)
);
CREATE INDEX ${n.index("letters", "seq")} ON ${n.letters} (seq);
CREATE INDEX ${n.index("letters", "redriven")} ON ${n.letters} (consumer, topic, seq) WHERE redriven_at IS NOT NULL;
`;

/** As it was inserted, and at most at the floor of the log. */
const tailed = "(o.status = 'PENDING' AND o.available_at IS NULL AND o.next_attempt_at IS NULL AND o.seq <= t.floor)";

const view = (n: Names): string => `-- What a person at a SQL prompt reads: the derived state, who publishes it, why it waits.
CREATE VIEW ${n.events} AS
SELECT o.seq, o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version, o.payload, o.payload_bytes, o.content_type, o.headers,
       o.idempotency_key, o.lane, o.created_at, o.available_at, o.status, o.retry_count, o.next_attempt_at, o.last_error,
       CASE WHEN ${tailed} THEN coalesce((SELECT m.at FROM ${n.tail_marks} m WHERE m.floor >= o.seq ORDER BY m.floor LIMIT 1), t.at)
         ELSE o.published_at END AS published_at,
       CASE WHEN ${tailed} THEN 'PUBLISHED' WHEN w.relay IS NOT NULL AND o.status IN ('PENDING', 'FAILED') THEN 'PUBLISHING' ELSE o.status END AS state,
       o.status = 'PUBLISHED' OR ${tailed} AS published,
       w.relay AS owner,
       CASE WHEN o.status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') THEN h.why END AS hold,
       o.error_code, o.error_detail
FROM ${n.outbox} o
CROSS JOIN ${n.tail} t
LEFT JOIN ${n.holds} h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
LEFT JOIN (
  SELECT u.seq, w.relay, l.lane
  FROM ${n.windows} w
  JOIN ${n.relays} r ON r.relay = w.relay AND r.expires_at > pg_catalog.clock_timestamp()
  JOIN ${n.lanes} l ON l.owner = w.relay
  CROSS JOIN LATERAL pg_catalog.unnest(w.seqs) AS u (seq)
) w ON w.seq = o.seq AND w.lane = o.lane;
`;

/**
 * Claim and settle as functions: PL/pgSQL keeps the plans of their statements for the session. Planning each time would cost more than the
 * rows of a small window. Each statement of a function has its own snapshot. A cached plan may have been made for an empty table, so no
 * plan may read a whole table.
 *
 * Claims and settles take a shared lock on a lane, because only the relay that owns the lane claims or settles there. Operations that take
 * a lane, give it away, settle a failure or look closer take an exclusive lock.
 */
const ofRelays = `LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $waybill$
#variable_conflict use_column`;

/** A window must be durable before anything of it is sent, whatever the database's default is. */
const durable = `IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;`;

/** Distinguishes servers, and restarts of one server; and the highest number that was drawn. */
const server = "extract(epoch FROM pg_postmaster_start_time())";
const drawn = (n: Names): string => `coalesce(pg_sequence_last_value(${literal(n.seq)}::regclass), 0)`;

/**
 * If at most 500 numbers were drawn since the lowest floor, one scan of all their rows costs less than one scan per lane. If there are more
 * than the window takes, each lane gets its share.
 */
const claiming = (
  n: Names,
): string => `-- A whole claim, as long as nothing is out of the ordinary; it takes nothing otherwise. The last row says which it was, and what was seen.
-- Arrays have a place for each lane, which is null where the relay does not ask for it.
CREATE FUNCTION ${n.claim}(mine text, epochs bigint[], redrives bigint[], floors bigint[], wants integer[], known text[], stale text[],
  behind boolean, lowest bigint, made_id text, most integer, most_bytes bigint, largest bigint, server numeric, highest bigint,
  anchors bigint[], anchor_ids text[])
RETURNS TABLE (seq bigint, id text, aggregate_type text, aggregate_id text, event_type text, content_type text, idempotency_key text,
  event_version integer, headers text, created bigint, payload text, payload_hex text, lane smallint, retry_count integer, ordinary boolean)
${ofRelays}
DECLARE
  -- Before the transaction has an id, so that every event that it does not see has a higher number, or an older transaction.
  drawn bigint := ${drawn(n)};
  locked smallint[];
  oldest xid8;
BEGIN
  ${durable}
  IF behind OR drawn - lowest > least(most, 500) THEN
    ${claimingFrom(n, {
      some: `(behind OR EXISTS (SELECT 1 FROM ${n.outbox} o WHERE o.lane = t.lane AND o.status = 'PENDING' AND (o.available_at IS NULL OR o.next_attempt_at IS NOT NULL)
        AND o.seq > floors[t.lane + 1] AND o.seq NOT IN (SELECT seq FROM open)))`,
      rows: `unnest(locked) AS t (lane) CROSS JOIN LATERAL (
        SELECT ${claimed}, row_number() OVER (ORDER BY o.seq) AS place
        FROM ${n.outbox} o WHERE o.lane = t.lane AND o.status = 'PENDING' AND (o.available_at IS NULL OR o.next_attempt_at IS NOT NULL)
          AND o.seq > floors[t.lane + 1] AND o.seq NOT IN (SELECT seq FROM open)
        ORDER BY o.seq LIMIT wants[t.lane + 1]
      ) o WHERE (SELECT ordinary FROM seen) ORDER BY o.place, o.seq LIMIT most`,
      sorted: " ORDER BY seq",
      shares: "true",
    })}
  ELSE
    -- The index of pending rows begins with the lane. This condition does not imply its predicate, so only the primary key can serve it.
    ${claimingFrom(n, {
      some: `t.lane IN (SELECT o.lane FROM ${n.outbox} o WHERE o.seq > lowest AND o.status IN ('PENDING', '') AND (o.available_at IS NULL OR o.next_attempt_at IS NOT NULL)
        AND o.seq NOT IN (SELECT seq FROM open))`,
      rows: `(SELECT ${claimed}
        FROM ${n.outbox} o WHERE o.seq > lowest AND o.status IN ('PENDING', '') AND (o.available_at IS NULL OR o.next_attempt_at IS NOT NULL)
          AND o.seq NOT IN (SELECT seq FROM open) AND o.lane = ANY (locked) ORDER BY o.seq LIMIT most
      ) o WHERE (SELECT ordinary FROM seen)`,
      sorted: "",
      shares: "false",
    })}
  END IF;
  IF cardinality(stale) > 0 THEN
    DELETE FROM ${n.windows} WHERE relay = mine AND "window" = ANY (stale);
  END IF;
END $waybill$;
`;

const claimed = `o.seq, o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.content_type, o.idempotency_key, o.event_version, o.headers::text AS headers,
          o.created_at, o.payload, o.payload_bytes, o.lane, o.retry_count`;

/** How rows are found: whether a lane `t` has some, the rows of the locked lanes, their order, and whether each lane gives a share. */
interface Way {
  readonly some: string;
  readonly rows: string;
  readonly sorted: string;
  readonly shares: string;
}

const claimingFrom = (
  n: Names,
  { some, rows, sorted, shares }: Way,
): string => `WITH open AS MATERIALIZED (SELECT unnest(w.seqs) AS seq FROM ${n.windows} w WHERE w."window" = ANY (known) AND w.relay = mine)
    SELECT coalesce(array_agg(l.lane), '{}'), pg_snapshot_xmin(pg_current_snapshot()) INTO locked, oldest FROM (
      SELECT t.lane FROM ${n.lanes} t WHERE t.owner = mine AND floors[t.lane + 1] IS NOT NULL AND ${some} ORDER BY t.lane FOR SHARE OF t) l;
    -- A statement of its own: it sees whatever was done to these lanes until they were locked. It visits each of them once, by one snapshot.
    RETURN QUERY WITH open AS MATERIALIZED (SELECT unnest(w.seqs) AS seq FROM ${n.windows} w WHERE w."window" = ANY (known) AND w.relay = mine
    ), seen AS MATERIALIZED (
      SELECT NOT EXISTS (SELECT 1 FROM ${n.lanes} t WHERE t.reopened <> redrives[t.lane + 1]
          OR t.lane = ANY (locked) AND (t.owner = mine AND t.epoch = epochs[t.lane + 1]) IS NOT TRUE)
        AND ${server} = server AND ${drawn(n)} >= highest
        -- Another event under a number that was claimed before: the sequence was set back, and has passed its old place since.
        AND NOT EXISTS (SELECT 1 FROM ${n.outbox} a WHERE a.seq = ANY (anchors) AND a.id <> ALL (anchor_ids))
        AND NOT EXISTS (SELECT 1 FROM ${n.outbox} WHERE status = 'FAILED' AND next_attempt_at <= (SELECT clock_timestamp()) AND floors[lane + 1] IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM ${n.outbox} WHERE status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL
          AND available_at <= (SELECT clock_timestamp()) AND floors[lane + 1] IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM ${n.holds} WHERE free_to IS NOT NULL AND floors[lane + 1] IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM ${n.suspects} WHERE floors[lane + 1] IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM ${n.destinations} WHERE floors[lane + 1] IS NOT NULL) AS ordinary,
        EXISTS (SELECT 1 FROM ${n.holds}) AS any_held
    ), ready AS MATERIALIZED (
      SELECT o.*, CASE WHEN (SELECT any_held FROM seen) THEN EXISTS (
          SELECT 1 FROM ${n.holds} h WHERE h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
          AND (h.free_to IS NULL AND (h.destination IS NOT NULL OR o.seq <> h.cause_seq) OR o.seq > h.free_to)) ELSE false END AS held
      FROM ${rows}
    ), whole AS MATERIALIZED (
      SELECT count(*) AS n, array_agg(seq${sorted}) AS seqs, coalesce(sum(coalesce(octet_length(headers), 0) + coalesce(octet_length(payload), 0)
          + coalesce(octet_length(payload_bytes), 0) + coalesce(octet_length(id), 0) + coalesce(octet_length(aggregate_type), 0)
          + coalesce(octet_length(aggregate_id), 0) + coalesce(octet_length(event_type), 0) + coalesce(octet_length(content_type), 0)
          + coalesce(octet_length(idempotency_key), 0)), 0) <= most_bytes
        AND coalesce(max(coalesce(octet_length(payload), octet_length(payload_bytes))), 0) <= largest AND NOT coalesce(bool_or(held), false) AS fits
      FROM ready
    ), made AS (
      INSERT INTO ${n.windows} ("window", relay, width, seqs)
      SELECT made_id, mine, n + (SELECT count(*) FROM open), seqs FROM whole WHERE fits AND n > 0
    )
    -- Microseconds as an integer: how a float is printed depends on the session's settings.
    (SELECT seq, id, aggregate_type, aggregate_id, event_type, content_type, idempotency_key, event_version, headers,
       CASE WHEN isfinite(created_at) THEN (date_part('epoch', created_at) * 1000000)::bigint
         WHEN created_at > now() THEN 9223372036854775807 ELSE -9223372036854775807 END,
       payload, encode(payload_bytes, 'hex'), lane, retry_count, NULL::boolean
     FROM ready WHERE (SELECT fits FROM whole)${sorted})
    UNION ALL SELECT NULL, pg_current_xact_id_if_assigned()::text, oldest::text, locked::text, '${shares}', NULL, NULL, NULL, NULL,
      drawn, NULL, NULL, NULL, NULL, (SELECT ordinary FROM seen) AND (SELECT fits FROM whole);`;

const settling = (
  n: Names,
): string => `-- A settle of published events, and of others that only leave the window. Answers whether they were the last of it; null, with nothing done,
-- where a lane is lost or an event is not in the window.
CREATE FUNCTION ${n.settle}(mine text, settled text, lanes smallint[], epochs bigint[], given bigint[], others bigint[], added_from bigint,
  added_to bigint, keep boolean)
RETURNS boolean
${ofRelays}
DECLARE
  leaving bigint[] := given || others;
  held bigint[];
  remaining bigint[] := '{}';
  done bigint;
BEGIN
  ${durable}
  SELECT count(*) INTO done FROM (
    SELECT t.lane, t.epoch FROM ${n.lanes} t WHERE t.owner = mine AND t.lane = ANY (lanes) ORDER BY t.lane FOR SHARE
  ) t WHERE t.epoch = epochs[array_position(lanes, t.lane)];
  IF done < cardinality(lanes) THEN
    RETURN NULL;
  END IF;
  -- Alone: a settle that its relay has given up may still be at work.
  DELETE FROM ${n.windows} w WHERE w."window" = settled AND w.relay = mine AND w.seqs = leaving;
  IF NOT FOUND THEN
    SELECT w.seqs INTO held FROM ${n.windows} w WHERE w."window" = settled AND w.relay = mine FOR UPDATE;
    remaining := ARRAY(SELECT u.seq FROM unnest(held) AS u (seq) WHERE u.seq NOT IN (SELECT unnest(leaving)));
    IF held IS NULL OR cardinality(held) - cardinality(remaining) <> cardinality(leaving) THEN
      RETURN NULL;
    END IF;
    IF remaining = '{}' THEN
      DELETE FROM ${n.windows} WHERE "window" = settled;
    ELSE
      UPDATE ${n.windows} SET seqs = remaining WHERE "window" = settled;
    END IF;
  END IF;
  -- The bounds on created_at keep the database from looking into every partition.
  IF keep THEN
    UPDATE ${n.outbox} SET status = 'PUBLISHED', published_at = clock_timestamp(), next_attempt_at = NULL
    WHERE seq = ANY (given) AND status IN ('PENDING', 'FAILED')
      AND created_at >= to_timestamp(added_from::bigint / 1000.0) AND created_at < to_timestamp(added_to::bigint / 1000.0);
  ELSE
    DELETE FROM ${n.outbox}
    WHERE seq = ANY (given) AND status IN ('PENDING', 'FAILED')
      AND created_at >= to_timestamp(added_from::bigint / 1000.0) AND created_at < to_timestamp(added_to::bigint / 1000.0);
  END IF;
  GET DIAGNOSTICS done = ROW_COUNT;
  -- Somebody may have changed the moment of adding by hand, or have settled the event some other way.
  IF done < cardinality(given) AND keep THEN
    UPDATE ${n.outbox} SET status = 'PUBLISHED', published_at = clock_timestamp(), next_attempt_at = NULL
    WHERE seq = ANY (given) AND status IN ('PENDING', 'FAILED');
  ELSIF done < cardinality(given) THEN
    DELETE FROM ${n.outbox} WHERE seq = ANY (given) AND status IN ('PENDING', 'FAILED');
  END IF;
  -- Two questions: for one over both tables, the planner would read an index of the holds to its end.
  IF EXISTS (SELECT 1 FROM ${n.holds}) OR EXISTS (SELECT 1 FROM ${n.suspects}) THEN
    -- The next claims release the followers of these events, in order.
    UPDATE ${n.holds} SET free_to = 0 WHERE free_to IS NULL AND destination IS NULL AND cause_seq = ANY (given);
    DELETE FROM ${n.suspects} WHERE seq = ANY (given);
  END IF;
  RETURN remaining = '{}';
END $waybill$;
`;

/**
 * The first and the last statement of an event that is applied alone. They are in PL/pgSQL, which keeps their plans for the session:
 * planning them for each event costs PostgreSQL more than running them. A cached plan may have been made for an empty table, so the
 * deletion must not read a whole table.
 */
const applying = (
  n: Names,
): string => `-- Marks an event. Answers which transaction did, and the process to end if that transaction hangs; or NULL when the event has a mark already.
CREATE FUNCTION ${n.mark}(mine text, event text, version integer) RETURNS text LANGUAGE plpgsql AS $waybill$
DECLARE
  made pg_catalog.text;
BEGIN
  INSERT INTO ${n.inbox} (consumer, event_id, processed_at, handler_version, finished) VALUES (mine, event, pg_catalog.clock_timestamp(), version, false)
  ON CONFLICT DO NOTHING
  RETURNING pg_catalog.pg_current_xact_id()::pg_catalog.text OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) pg_catalog.pg_backend_pid()::pg_catalog.text INTO made;
  RETURN made;
END $waybill$;
-- Finishes the mark, if this is the transaction that made it. A mark that was deleted meanwhile is made again. Some libraries cannot read void.
CREATE FUNCTION ${n.finish}(mine text, event text, version integer, made text) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $waybill$
BEGIN
  IF pg_catalog.pg_current_xact_id()::pg_catalog.text OPERATOR(pg_catalog.<>) made THEN
    RAISE EXCEPTION USING ERRCODE = '22P02', MESSAGE = 'waybill: another transaction';
  END IF;
  DELETE FROM ${n.attempts} WHERE consumer OPERATOR(pg_catalog.=) mine AND event_id OPERATOR(pg_catalog.=) event;
  INSERT INTO ${n.inbox} (consumer, event_id, processed_at, handler_version, finished) VALUES (mine, event, pg_catalog.clock_timestamp(), version, true)
  ON CONFLICT (consumer, event_id) DO UPDATE SET finished = true;
  RETURN true;
END $waybill$;
`;

/** With the owner's rights, since only the owner of a table may attach to it and detach from it. */
const ofPartitions = `LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET "TimeZone" = 'UTC' SET "DateStyle" = 'ISO' SET lock_timeout = '500ms' AS $waybill$
#variable_conflict use_variable`;

/** The second session leaves the work to the first: two would wait for each other. */
const alone = (n: Names): string =>
  `pg_try_advisory_xact_lock(hashtextextended('waybill.partitions', ${literal(n.outbox)}::regclass::oid::bigint))`;

const partitions = (
  n: Names,
): string => `-- The default partition takes rows that fit no other partition, so that no insert is ever refused.
CREATE TABLE ${n.partition("default")} PARTITION OF ${n.outbox} DEFAULT ${storage};
-- Attaching stops neither producers nor relays, except for those that use the default partition at that moment. A time of which the
-- default partition has events already stays there.
CREATE FUNCTION ${n.add_partitions}(ahead integer) RETURNS TABLE (name text, made boolean, why text) ${ofPartitions}
DECLARE
  unit text := (SELECT m.partitions FROM ${n.meta} m);
  now_utc timestamp := date_trunc(unit, clock_timestamp() AT TIME ZONE 'UTC');
  lower timestamptz;
  upper timestamptz;
  partition text;
BEGIN
  IF unit IS NULL OR NOT ${alone(n)} THEN
    RETURN;
  END IF;
  FOR i IN 0..ahead LOOP
    lower := (now_utc + i * ('1 ' || unit)::interval) AT TIME ZONE 'UTC';
    upper := (now_utc + (i + 1) * ('1 ' || unit)::interval) AT TIME ZONE 'UTC';
    name := ${literal(`${n.plain("outbox")}_`)} || to_char(lower AT TIME ZONE 'UTC', 'YYYYMMDD');
    partition := format('%s.%I', ${literal(n.schema)}, name);
    CONTINUE WHEN EXISTS (SELECT 1 FROM pg_inherits h WHERE h.inhparent = ${literal(n.outbox)}::regclass AND h.inhrelid = to_regclass(partition));
    made := false;
    BEGIN
      EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING ALL) %s', partition, ${literal(n.outbox)}, ${literal(storage)});
      EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', ${literal(n.outbox)}, partition, lower, upper);
      made := true;
    EXCEPTION
      WHEN check_violation THEN why := 'events of that time are in the default partition already';
      WHEN lock_not_available THEN why := 'the default partition was in use for too long';
      WHEN duplicate_table OR invalid_object_definition THEN why := SQLERRM;
    END;
    RETURN NEXT;
  END LOOP;
END $waybill$;
-- Drops the oldest partition of which every event was added before that moment, leaving out those that are named. Events that are not
-- published yet, or were published since, go into the default partition.
CREATE FUNCTION ${n.drop_partition}(before timestamptz, emptied boolean, leaving text[])
RETURNS TABLE (name text, done text, events bigint, moved bigint) ${ofPartitions}
DECLARE
  -- Each part of the condition has an index.
  stays constant text := $stays$(status = 'PENDING' AND (next_attempt_at IS NOT NULL OR available_at IS NULL AND seq > $2))
    OR (status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL) OR status = 'FAILED' OR status = 'BLOCKED' OR status = 'DEAD'
    OR status = 'PUBLISHED' AND published_at >= $1 OR status = 'PUBLISHED' AND published_at IS NULL$stays$;
  columns constant text := 'seq, id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key,
    created_at, available_at, status, retry_count, next_attempt_at, last_error, published_at, error_code, error_detail';
  partition regclass;
  pages bigint;
  estimate bigint;
  waiting bigint;
  other boolean;
  -- The log's events up to the first were published before that moment, up to the second by now.
  tail bigint := coalesce((SELECT max(m.floor) FROM ${n.tail_marks} m WHERE m.at < before), 0);
  settled bigint := (SELECT t.floor FROM ${n.tail} t);
  -- A relay that reads the log has an event in hand until the floor passes it: moving its row would add it again.
  in_hand constant text := 'SELECT EXISTS (SELECT 1 FROM %s WHERE status = ''PENDING'' AND available_at IS NULL AND next_attempt_at IS NULL AND seq > $1)';
BEGIN
  IF NOT ${alone(n)} THEN
    RETURN;
  END IF;
  SELECT c.oid::regclass, c.relname, c.relpages, c.reltuples INTO partition, name, pages, estimate
  FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid
  CROSS JOIN LATERAL (SELECT substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO [(]''([^'']+)''[)]$')::timestamptz AS upper) b
  WHERE h.inhparent = ${literal(n.outbox)}::regclass AND b.upper <= before AND NOT c.relname = ANY (leaving)
  ORDER BY b.upper LIMIT 1;
  IF partition IS NULL THEN
    RETURN;
  END IF;
  EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %s WHERE %s LIMIT 10001) s', partition, stays) INTO moved USING before, tail;
  IF EXISTS (SELECT 1 FROM ${n.tail} t WHERE t.owner IS NOT NULL) THEN
    EXECUTE format(in_hand, partition) INTO other USING settled;
    IF other THEN
      done := 'busy';
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  IF moved > 10000 THEN
    done := 'full';
    RETURN NEXT;
    RETURN;
  END IF;
  -- A small partition is counted, a larger one estimated.
  events := estimate;
  IF pages < 10000 OR estimate < 0 THEN
    EXECUTE format('SELECT count(*) FROM %s', partition) INTO events;
  END IF;
  BEGIN
    LOCK TABLE ONLY ${n.outbox} IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', ${literal(n.outbox)}, partition);
    IF EXISTS (SELECT 1 FROM ${n.tail} t WHERE t.owner IS NOT NULL) THEN
      EXECUTE format(in_hand, partition) INTO other USING settled;
      IF other THEN
        RAISE EXCEPTION USING ERRCODE = 'WB002';
      END IF;
    END IF;
    -- Nobody can add, claim or settle any more. Only now is it certain what has to stay; it goes into the default partition.
    EXECUTE format('SELECT count(*) FROM %s WHERE %s', partition, stays) INTO waiting USING before, tail;
    PERFORM set_config('waybill.moving', 'on', true);
    EXECUTE format('INSERT INTO %s (%s) SELECT %s FROM %s WHERE %s ORDER BY seq', ${literal(n.outbox)}, columns, columns, partition, stays) USING before, tail;
    GET DIAGNOSTICS moved = ROW_COUNT;
    PERFORM set_config('waybill.moving', '', true);
    IF moved <> waiting THEN
      RAISE EXCEPTION 'only % of % events could be moved out of partition %: does a trigger of yours skip inserts?', moved, waiting, name;
    END IF;
    IF emptied THEN
      EXECUTE format('SELECT EXISTS (SELECT 1 FROM %s WHERE (%s) IS NOT TRUE)', partition, stays) INTO other USING before, tail;
      IF other THEN
        RAISE EXCEPTION USING ERRCODE = 'WB001';
      END IF;
    END IF;
    EXECUTE format('DROP TABLE %s', partition);
    done := 'dropped';
    events := events - moved;
  EXCEPTION
    WHEN lock_not_available OR SQLSTATE 'WB002' THEN done := 'busy';
    WHEN SQLSTATE 'WB001' THEN done := 'filled';
  END;
  RETURN NEXT;
END $waybill$;
`;
