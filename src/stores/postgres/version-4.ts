import { LANES } from "../../core/lane.ts";
import type { PartitionUnit } from "../kit/schema.ts";
import { inboxFunctions } from "./inbox-functions.ts";
import { literal, type Names } from "./names.ts";
import { addPartitions } from "./partitions.ts";
import { relayFunctions } from "./relay-functions.ts";

/**
 * Most of an insert's cost is in the expressions of constraints, triggers and generated columns: PostgreSQL reads, plans and prepares them
 * again for each statement. PL/pgSQL keeps the plans of its expressions for the session, so everything is in PL/pgSQL functions. Operators
 * are qualified, so that a role that inserts cannot substitute its own.
 */
const op = (left: string, operator: string, right: string): string => `${left} OPERATOR(pg_catalog.${operator}) ${right}`;
const both = (...conditions: readonly string[]): string => conditions.join(" AND ");
const bytes = (column: string): string => `pg_catalog.octet_length(${column})`;
const within = (value: string, least: string, most: string): string => both(op(value, ">=", least), op(value, "<=", most));

/** Headers of this many bytes cannot be nested too deeply for `JSON.stringify`, whatever is in them. */
const shallowBytes = 4_096;
/** As `kit/stored.ts` has it. */
const headersBytes = 131_072;

const named = (column: string): string => within(bytes(column), "1", "255");
const text = "headers::pg_catalog.text";
/** Matches the strings of a JSON text. An E literal, because without E the inserting session decides what a backslash means. */
const strings = String.raw`E'"(?:[^"\\\\]|\\\\.)*"'`;
const dated = (column: string): string => both(op(column, ">=", "'0001-01-01 00:00:00+00'"), op(column, "<", "'10000-01-01 00:00:00+00'"));
const moment = (column: string): string => `(${column} IS NULL OR ${op(column, "=", "'infinity'")} OR ${dated(column)})`;

interface Refusal {
  readonly rule: string;
  readonly holds: string;
  readonly says: string;
}

/** Rules for every row. */
const always: readonly Refusal[] = [
  { rule: "waybill_payload", holds: "one_payload", says: "Exactly one of payload and payload_bytes must be set." },
  { rule: "waybill_version", holds: op("event_version", ">=", "1"), says: "event_version is at least 1." },
  { rule: "waybill_times", holds: dated("created_at"), says: "created_at is of the years 1 to 9999." },
  {
    rule: "waybill_status",
    holds: op("status", "=", "ANY (ARRAY['PENDING', 'PUBLISHED', 'FAILED', 'BLOCKED', 'DEAD', 'DISCARDED'])"),
    says: "status is one of PENDING, PUBLISHED, FAILED, BLOCKED, DEAD and DISCARDED.",
  },
  ...["aggregate_type", "aggregate_id", "event_type"].map((column) => ({
    rule: "waybill_names",
    holds: op(column, "<>", "''"),
    says: `${column} must not be empty.`,
  })),
];

/** Rules for rows since version 2. They refuse what no relay can carry, and `kit/stored.ts` would call unreadable. */
const since: readonly Refusal[] = [
  ...["id", "aggregate_type", "aggregate_id", "event_type"].map((column) => ({
    rule: "waybill_names",
    holds: named(column),
    says: `${column} takes 1 to 255 bytes.`,
  })),
  {
    rule: "waybill_names",
    holds: `(idempotency_key IS NULL OR ${named("idempotency_key")})`,
    says: "idempotency_key takes 1 to 255 bytes.",
  },
  {
    rule: "waybill_content_type",
    holds: `(${op("content_type", "=", "'application/json'")} OR ${both(named("content_type"), op("content_type", "~", "'^[ -~]+$'"))})`,
    says: "content_type takes 1 to 255 printable ASCII characters.",
  },
  {
    rule: "waybill_headers",
    // The cheap questions first: nearly all headers are empty, or short.
    holds: `(${op(text, "=", "'{}'")} OR ${both(
      op("pg_catalog.json_typeof(headers)", "=", "'object'"),
      op(bytes(text), "<=", String(headersBytes)),
      `(${op(bytes(text), "<=", String(shallowBytes))} OR ${op(`pg_catalog.regexp_replace(${text}, ${strings}, '', 'g')`, "!~", "'[[{].*[[{]'")})`,
    )})`,
    says: `headers is a JSON object of at most ${headersBytes} bytes, beyond ${shallowBytes} without nested values.`,
  },
  {
    rule: "waybill_times",
    holds: both(...["available_at", "next_attempt_at", "published_at"].map(moment)),
    says: "available_at, next_attempt_at and published_at are of the years 1 to 9999, or infinity.",
  },
  { rule: "waybill_retries", holds: within("retry_count", "0", "1000000000"), says: "retry_count is 0 to 1000000000." },
];

const whens = (refusals: readonly Refusal[]): string =>
  refusals.map(({ rule, holds, says }) => `    WHEN NOT (${holds}) THEN ${literal(`${rule}: ${says}`)}`).join("\n");

/** The columns that the rules are about, with their types. */
const parameters = `exempt boolean, one_payload boolean, id text, aggregate_type text, aggregate_id text, event_type text, event_version integer,
  content_type text, headers json, idempotency_key text, created_at timestamptz, available_at timestamptz, status text, retry_count integer,
  next_attempt_at timestamptz, published_at timestamptz`;
const passed = `(payload IS NULL) <> (payload_bytes IS NULL), id, aggregate_type, aggregate_id, event_type, event_version,
  content_type COLLATE "C", headers, idempotency_key, created_at, available_at, status, retry_count, next_attempt_at, published_at`;

/** Constraints of version 1, whose names PostgreSQL generated. One that a later PostgreSQL prints differently stays, and does no harm. */
const unnamed = [
  "CHECK ((aggregate_type <> ''::text))",
  "CHECK ((aggregate_id <> ''::text))",
  "CHECK ((event_type <> ''::text))",
  "CHECK ((event_version >= 1))",
  "CHECK (((created_at >= %) AND (created_at < %)))",
  "CHECK ((status = ANY (ARRAY['PENDING'::text, 'PUBLISHED'::text, 'FAILED'::text, 'BLOCKED'::text, 'DEAD'::text, 'DISCARDED'::text])))",
  "CHECK (((payload IS NULL) <> (payload_bytes IS NULL)))",
];
const superseded = ["waybill_names", "waybill_content_type", "waybill_headers", "waybill_times", "waybill_retries"];

/**
 * In percent. If a settled row stays on its page, the WAL gets only what changed; otherwise it gets the whole row. In return, events take
 * more space: docs/decisions/0025 has the figures.
 */
const fillfactor = 70;
const storage = `WITH (fillfactor = ${fillfactor}, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000, autovacuum_analyze_scale_factor = 0.05)`;

/** The outbox is locked for a moment, and no row of it is read or written. */
export const version4 = (n: Names, unit: PartitionUnit | null): string => `
LOCK TABLE ${n.outbox} IN ACCESS EXCLUSIVE MODE;
-- The same lanes as before.
CREATE OR REPLACE FUNCTION ${n.lane}(aggregate_type text, aggregate_id text) RETURNS smallint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $waybill$
BEGIN
  RETURN (${op(`pg_catalog.get_byte(pg_catalog.sha256(pg_catalog.convert_to(${op(op("$1", "||", "pg_catalog.chr(31)"), "||", "$2")}, 'UTF8')), 0)`, "%", String(LANES))})::smallint;
END $waybill$;
-- As before, the transaction has its id before it draws a number: CASE evaluates its condition first. waybill_next_seq stays, for tables
-- that somebody made LIKE the outbox.
ALTER TABLE ${n.outbox} ALTER COLUMN seq SET DEFAULT
  CASE WHEN pg_catalog.pg_current_xact_id() IS NULL THEN NULL ELSE pg_catalog.nextval(${literal(n.seq)}::pg_catalog.regclass) END;
CREATE OR REPLACE FUNCTION ${n.moves}() RETURNS boolean LANGUAGE plpgsql STABLE AS $waybill$
BEGIN
  RETURN ${op("pg_catalog.current_setting('waybill.moving', true)", "=", "'on'")} AND pg_catalog.pg_has_role(
    (SELECT c.relowner FROM pg_catalog.pg_class c WHERE ${op("c.oid", "=", `${literal(n.outbox)}::pg_catalog.regclass`)}), 'USAGE');
END $waybill$;
DROP TRIGGER waybill_key ON ${n.outbox};
CREATE TRIGGER waybill_key BEFORE INSERT ON ${n.outbox} FOR EACH ROW
WHEN (NEW.idempotency_key IS NOT NULL AND ${n.moves}() IS NOT TRUE)
EXECUTE FUNCTION ${n.use_key}();
-- True, or the error of a constraint, which has the name of the rule. Rows from before version 2 are exempt from what came with it.
CREATE FUNCTION ${n.check}(${parameters})
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $waybill$
DECLARE
  refused text;
BEGIN
  refused := CASE
${whens(always)}
    WHEN exempt THEN NULL
${whens(since)}
  END;
  IF refused IS NULL THEN
    RETURN true;
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = ${literal(n.plain("outbox"))}, CONSTRAINT = pg_catalog.split_part(refused, ': ', 1),
    MESSAGE = pg_catalog.format('the outbox refuses this event (%s)', refused);
END $waybill$;
${relayFunctions(n)}
${inboxFunctions(n)}
DO $waybill$
DECLARE
  outbox regclass := ${literal(n.outbox)};
  was text := (SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = outbox AND conname = 'waybill_names');
  last text := coalesce(substring(was FROM 'seq <= ''?([0-9]+)'), (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM ${n.seq})::text);
  old record;
BEGIN
  -- Every role runs its own part of them, also where functions are nobody's by default.
  GRANT EXECUTE ON FUNCTION ${n.lane}(text, text), ${n.moves}(), ${n.check}, ${n.claim}, ${n.settle}, ${n.mark}, ${n.finish} TO PUBLIC;
  FOR old IN SELECT conname FROM pg_constraint WHERE conrelid = outbox AND contype = 'c'
    AND (conname IN (${superseded.map(literal).join(", ")}) OR pg_get_constraintdef(oid) LIKE ANY (ARRAY[
      ${unnamed.map(literal).join(",\n      ")}]))
  LOOP
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', outbox, old.conname);
  END LOOP;
  EXECUTE format(${literal(`ALTER TABLE %s ADD CONSTRAINT waybill_row CHECK (${n.check.replaceAll("%", "%%")}(seq <= %s, ${passed})) NOT VALID`)}, outbox, last);
  -- Of pages that are still to be filled. What somebody has set stays.
  FOR old IN SELECT c.oid::regclass AS name FROM pg_class c WHERE c.relkind = 'r' AND coalesce(array_to_string(c.reloptions, ','), '') !~ 'fillfactor'
    AND (c.oid = outbox OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = outbox))
  LOOP
    EXECUTE format('ALTER TABLE %s SET (fillfactor = ${fillfactor})', old.name);
  END LOOP;
END $waybill$;
${unit === null ? "" : addPartitions(n, storage, "CREATE OR REPLACE")}`;
