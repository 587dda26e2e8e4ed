import type { Schema } from "../../contracts/store.ts";
import { causesOf, sqlStateOf } from "../../core/causes.ts";
import { systemClock } from "../../core/clock.ts";
import { persist } from "../../core/time.ts";
import { LANES } from "../../core/lane.ts";
import type { Connection, Run } from "./connection.ts";
import { sqlState } from "./driver.ts";
import { grants } from "./grants.ts";
import { literal, type Names } from "./names.ts";
import { checkFrom, checkVersion, inOneTransaction, refuseLayout, refuseNewer, type PartitionUnit } from "../kit/schema.ts";
import { firstPartitions, partitionTables } from "./partitions.ts";
import { delayed, pending } from "./pending.ts";
import { columns, version2 } from "./version-2.ts";
import { errorColumns, version3 } from "./version-3.ts";
import { version4 } from "./version-4.ts";

/** Every event with its derived state. */
function events(n: Names): string {
  return `
SELECT o.*,
       CASE WHEN w.relay IS NOT NULL AND o.status IN ('PENDING', 'FAILED') THEN 'PUBLISHING' ELSE o.status END AS state,
       o.status = 'PUBLISHED' AS published,
       w.relay AS owner,
       CASE WHEN o.status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') THEN h.why END AS hold
FROM ${n.outbox} o
LEFT JOIN ${n.holds} h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
LEFT JOIN (
  SELECT u.seq, w.relay, l.lane
  FROM ${n.windows} w
  JOIN ${n.relays} r ON r.relay = w.relay AND r.expires_at > clock_timestamp()
  JOIN ${n.lanes} l ON l.owner = w.relay
  CROSS JOIN LATERAL unnest(w.seqs) AS u (seq)
) w ON w.seq = o.seq AND w.lane = o.lane`;
}

/** Storage parameters of the tables that hold events. */
const storage = "WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000, autovacuum_analyze_scale_factor = 0.05)";

/** Applied in order, never changed once released. */
interface Migration {
  /** Each statement runs in its own transaction before `then`, and is safe to repeat. */
  readonly first?: (n: Names) => readonly string[];
  /** In one transaction with the new version. */
  readonly then: (n: Names, unit: PartitionUnit | null) => string;
}

/** An outbox is partitioned from the start, or never. version-2.ts replaces waybill_add and adds a column to the inbox. */
const version1 = (n: Names, unit: PartitionUnit | null): string => `
-- A transaction has its id before it draws a number. So whoever has seen all transactions end that were running when a number
-- had been drawn has seen every event up to that number: the proof behind the relay's floors. CACHE 1 for the same reason.
CREATE SEQUENCE ${n.seq} CACHE 1;
CREATE FUNCTION ${n.next_seq}() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $waybill$
BEGIN
  PERFORM pg_catalog.pg_current_xact_id();
  RETURN pg_catalog.nextval(${literal(n.seq)}::pg_catalog.regclass);
END $waybill$;
-- The lane of an aggregate, here and nowhere else. PostgreSQL's own hash functions may change with its version; SHA-256 does not.
CREATE FUNCTION ${n.lane}(aggregate_type text, aggregate_id text) RETURNS smallint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $waybill$
  SELECT (pg_catalog.get_byte(pg_catalog.sha256(pg_catalog.convert_to($1 OPERATOR(pg_catalog.||) pg_catalog.chr(31) OPERATOR(pg_catalog.||) $2, 'UTF8')), 0) OPERATOR(pg_catalog.%) ${LANES})::smallint
$waybill$;
CREATE TABLE ${n.outbox} (
  seq             bigint NOT NULL DEFAULT ${n.next_seq}(),
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
  lane            smallint NOT NULL GENERATED ALWAYS AS (${n.lane}(aggregate_type, aggregate_id)) STORED,
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
  PRIMARY KEY (${unit === null ? "seq" : "seq, created_at"})
) ${unit === null ? storage : "PARTITION BY RANGE (created_at)"};
CREATE ${unit === null ? "UNIQUE " : ""}INDEX ${n.index("outbox", "id")} ON ${n.outbox} (id);
-- Each scan of the relay has an index that holds only the rows it may find.
CREATE INDEX ${n.index("outbox", "pending")} ON ${n.outbox} (lane, seq) WHERE ${pending};
CREATE INDEX ${n.index("outbox", "delayed")} ON ${n.outbox} (available_at) WHERE ${delayed};
CREATE INDEX ${n.index("outbox", "failed")} ON ${n.outbox} (next_attempt_at) WHERE status = 'FAILED';
CREATE INDEX ${n.index("outbox", "blocked")} ON ${n.outbox} (aggregate_type, aggregate_id, seq) WHERE status = 'BLOCKED';
CREATE INDEX ${n.index("outbox", "dead")} ON ${n.outbox} (seq) WHERE status IN ('DEAD', 'DISCARDED');
CREATE INDEX ${n.index("outbox", "published")} ON ${n.outbox} (published_at) WHERE status = 'PUBLISHED';

CREATE TABLE ${n.keys} (
  key        text COLLATE "C" PRIMARY KEY,
  event_id   text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ${n.index("keys", "age")} ON ${n.keys} (created_at);
-- A used key adds nothing, whoever inserts; with the owner's rights, so that a writer needs none on the keys.
CREATE FUNCTION ${n.use_key}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $waybill$
BEGIN
  INSERT INTO ${n.keys} (key, event_id) VALUES (NEW.idempotency_key, NEW.id) ON CONFLICT DO NOTHING;
  IF FOUND THEN RETURN NEW; END IF;
  RETURN NULL;
END $waybill$;
-- An event that only moves from one partition to another has used its key before.
CREATE TRIGGER waybill_key BEFORE INSERT ON ${n.outbox} FOR EACH ROW
WHEN (NEW.idempotency_key IS NOT NULL AND pg_catalog.current_setting('waybill.moving', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ${n.use_key}();
-- What outbox.add calls: one statement and one parameter, whichever library carries it, under a role that may only insert.
CREATE FUNCTION ${n.add}(events json) RETURNS TABLE (id text, duplicate boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $waybill$
#variable_conflict use_column
DECLARE
  given text[] := ARRAY(SELECT e ->> 'idempotency_key' FROM json_array_elements(events) e WHERE e ->> 'idempotency_key' IS NOT NULL);
  used text[] := '{}';
BEGIN
  IF cardinality(given) > 0 THEN
    used := ARRAY(SELECT k.key FROM ${n.keys} k WHERE k.key = ANY (given));
  END IF;
  INSERT INTO ${n.outbox} (id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, available_at)
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
  LEFT JOIN ${n.keys} k ON k.key = e.idempotency_key
  ORDER BY e.ordinality;
END $waybill$;
REVOKE ALL ON FUNCTION ${n.add}(json) FROM PUBLIC;
REVOKE ALL ON FUNCTION ${n.use_key}() FROM PUBLIC;

CREATE TABLE ${n.relays} (
  relay      text COLLATE "C" PRIMARY KEY,
  started_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  "window"   integer NOT NULL DEFAULT 0,
  strategy   text
) WITH (fillfactor = 50);
-- These rows change when lanes change hands, and when an operator puts old events back into a lane (reopened).
CREATE TABLE ${n.lanes} (
  lane     smallint PRIMARY KEY,
  owner    text COLLATE "C",
  epoch    bigint NOT NULL DEFAULT 0,
  reopened bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO ${n.lanes} (lane) SELECT lane FROM generate_series(0, ${LANES - 1}) AS lane;
CREATE TABLE ${n.windows} (
  "window"   text COLLATE "C" PRIMARY KEY,
  relay      text COLLATE "C" NOT NULL,
  width      integer NOT NULL,
  seqs       bigint[] NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE ${n.suspects} (
  seq            bigint PRIMARY KEY,
  lane           smallint NOT NULL,
  aggregate_type text COLLATE "C" NOT NULL,
  aggregate_id   text COLLATE "C" NOT NULL,
  width          integer NOT NULL,
  deaths         integer NOT NULL
);
CREATE INDEX ${n.index("suspects", "aggregate")} ON ${n.suspects} (aggregate_type, aggregate_id);
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
CREATE TABLE ${n.audit} (
  at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  who    text NOT NULL,
  action text NOT NULL,
  events bigint NOT NULL,
  detail json NOT NULL
);

CREATE TABLE ${n.inbox} (
  consumer        text COLLATE "C" NOT NULL,
  event_id        text COLLATE "C" NOT NULL,
  processed_at    timestamptz NOT NULL,
  handler_version integer NOT NULL,
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
  PRIMARY KEY (consumer, topic)
);
-- What a person at a SQL prompt reads: the derived state, who publishes it, why it waits.
CREATE VIEW ${n.events} AS ${events(n)};
${unit === null ? "" : partitionTables(n, storage)}`;

const migrations: readonly Migration[] = [
  { then: version1 },
  { first: columns, then: version2 },
  { first: errorColumns, then: version3 },
  { then: version4 },
];

export const SCHEMA_VERSION = migrations.length;

const lockMs = 1_000;
const tries = 60;

/** Concurrent migrations run one after the other. */
const migrationLock = "SELECT pg_advisory_xact_lock(hashtextextended('waybill.migrate', 0))";

/** `asked` is the layout of a new outbox. An existing outbox must have the same layout; null accepts any. */
export function createSchema(connection: Connection, n: Names, asked: PartitionUnit | null): Schema {
  const { place } = connection;
  /** Waits only briefly for other transactions: sessions that come later would queue behind it. */
  const locking = <T>(work: (run: Run) => Promise<T>): Promise<T> => {
    const isBusy = (error: unknown): boolean => causesOf(error).some((cause) => ["55P03", "40P01"].includes(sqlStateOf(cause) ?? ""));
    const alone = (): Promise<T> =>
      connection.transaction(async (run) => {
        await run(`SET LOCAL lock_timeout = '${lockMs}ms'`);
        await run(migrationLock);
        return work(run);
      });
    return persist(alone, (error, tried) => (isBusy(error) && tried < tries ? systemClock.sleep(lockMs) : null));
  };
  /** False where the tables are of this version already. */
  const step = async (version: number): Promise<boolean> => {
    const { first, then } = migrations[version - 1]!;
    const is = (run: Run): Promise<number> => versionOf(run, n);
    if (first !== undefined && (await is(connection.run)) === version - 1)
      for (const sql of first(n)) await locking(async (run) => void ((await is(run)) === version - 1 && (await run(sql))));
    return locking(async (run) => {
      const from = await is(run);
      refuseNewer(place, from, SCHEMA_VERSION);
      if (from === 0) {
        if ((await run("SELECT 1 FROM pg_namespace WHERE nspname = $1", [unquoted(n.schema)])).length === 0)
          await run(`CREATE SCHEMA ${n.schema}`);
        await run(createMeta(n, asked));
      }
      const unit = await unitOf(run, n);
      refuseLayout(place, asked, unit);
      if (from < version) await run(`${then(n, unit)};\nUPDATE ${n.meta} SET version = ${version}`);
      if (unit !== null && version === SCHEMA_VERSION) await run(firstPartitions(n));
      return from < version;
    });
  };
  return {
    async migrate() {
      const applied: number[] = [];
      for (let version = 1; version <= SCHEMA_VERSION; version++) if (await step(version)) applied.push(version);
      return applied;
    },
    print: (from = 0) =>
      [
        inOneTransaction,
        ...(from === 0 ? [`CREATE SCHEMA IF NOT EXISTS ${n.schema};`, `${createMeta(n, asked)};`] : ["SET LOCAL lock_timeout = '5s';"]),
        ...checkFrom(migrations, from).flatMap(({ first, then }) => [...(first?.(n).map((sql) => `${sql};`) ?? []), then(n, asked).trim()]),
        `UPDATE ${n.meta} SET version = ${SCHEMA_VERSION};`,
        ...(asked === null ? [] : [`${firstPartitions(n)};`]),
        "",
      ].join("\n"),
    grants: () => grants(n, asked !== null),
    check: async () => {
      checkVersion(place, await versionOf(connection.run, n), SCHEMA_VERSION, "postgres://…");
      if (asked !== null) refuseLayout(place, asked, await unitOf(connection.run, n));
    },
  };
}

const createMeta = (n: Names, unit: PartitionUnit | null): string =>
  `CREATE TABLE ${n.meta} (version integer NOT NULL, partitions text);\nINSERT INTO ${n.meta} VALUES (0, ${unit === null ? "NULL" : literal(unit)})`;

/** How the outbox is partitioned. */
export const unitOf = async (run: Run, n: Names): Promise<PartitionUnit | null> =>
  ((await run(`SELECT partitions FROM ${n.meta}`))[0]?.["partitions"] ?? null) as PartitionUnit | null;

/** 0 when there are no tables. */
export async function versionOf(run: Run, n: Names): Promise<number> {
  const [found] = await run("SELECT to_regclass($1) IS NOT NULL AS found", [n.meta]);
  if (found?.["found"] !== "t") return 0;
  try {
    return Number((await run(`SELECT version FROM ${n.meta}`))[0]?.["version"] ?? 0);
  } catch (error) {
    if (sqlState(error) === "42P01") return 0; // a schema that this role may not look into has no tables for it
    throw error;
  }
}

const unquoted = (name: string): string => name.slice(1, -1).replaceAll('""', '"');
