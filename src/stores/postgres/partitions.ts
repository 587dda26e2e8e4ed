import type { Partitions } from "../../contracts/housekeeping.ts";
import { type Clock } from "../../core/clock.ts";
import { ahead, betweenTriesMs, mostMoved, nothing, tries, undropped } from "../kit/partitions.ts";
import { audit } from "./audit.ts";
import type { Connection, PgRow } from "./connection.ts";
import { literal, type Names } from "./names.ts";
import { delayed, pending } from "./pending.ts";

/** A partition of fewer pages is counted, a larger one estimated. */
const pagesCounted = 10_000;
/** How long other sessions may have to queue behind us while we wait for a lock. */
const lockTimeout = "500ms";

const columns = `seq, id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key,
  created_at, available_at, status, retry_count, next_attempt_at, last_error, published_at, error_code, error_detail`;

/** Rows that must survive the drop of their partition. Each part of the condition has an index. */
const stays = `(${pending}) OR (${delayed}) OR status = 'FAILED' OR status = 'BLOCKED' OR status = 'DEAD'
  OR status = 'PUBLISHED' AND published_at >= $1 OR status = 'PUBLISHED' AND published_at IS NULL`;

/** With the owner's rights, since only the owner of a table may attach to it and detach from it. */
const definer = `LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET "TimeZone" = 'UTC' SET "DateStyle" = 'ISO' SET lock_timeout = '${lockTimeout}'`;

/** The second session leaves the work to the first: two would wait for each other. */
const alone = (n: Names): string =>
  `pg_try_advisory_xact_lock(hashtextextended('waybill.partitions', ${literal(n.outbox)}::regclass::oid::bigint))`;

/** The default partition takes rows that fit no other partition, so that no insert is ever refused. */
export const partitionTables = (n: Names, storage: string): string => `
CREATE TABLE ${n.partition("default")} PARTITION OF ${n.outbox} DEFAULT ${storage};
${addPartitions(n, storage, "CREATE")}
${dropPartition(n)}
REVOKE ALL ON FUNCTION ${n.add_partitions}(integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION ${n.drop_partition}(timestamptz, boolean, text[]) FROM PUBLIC;
`;

/** New partitions get this storage. A migration that changes it must replace the function. */
export const addPartitions = (n: Names, storage: string, create: "CREATE" | "CREATE OR REPLACE"): string => `
-- Attaching stops neither producers nor relays, except for those that use the default partition at that moment. A time of which the
-- default partition has events already stays there.
${create} FUNCTION ${n.add_partitions}(ahead integer) RETURNS TABLE (name text, made boolean, why text) ${definer} AS $waybill$
#variable_conflict use_variable
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
END $waybill$;`;

/** The function names the columns that it moves. A migration that adds one must replace the function. */
export const dropPartition = (n: Names): string => `
-- Drops the oldest partition of which every event was added before that moment, leaving out those that are named.
CREATE OR REPLACE FUNCTION ${n.drop_partition}(before timestamptz, emptied boolean, leaving text[])
RETURNS TABLE (name text, done text, events bigint, moved bigint) ${definer} AS $waybill$
#variable_conflict use_variable
DECLARE
  partition regclass;
  pages bigint;
  estimate bigint;
  waiting bigint;
  other boolean;
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
  EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %s WHERE ${quoted(stays)} LIMIT ${mostMoved + 1}) s', partition) INTO moved USING before;
  IF moved > ${mostMoved} THEN
    done := 'full';
    RETURN NEXT;
    RETURN;
  END IF;
  events := estimate;
  IF pages < ${pagesCounted} OR estimate < 0 THEN
    EXECUTE format('SELECT count(*) FROM %s', partition) INTO events;
  END IF;
  BEGIN
    LOCK TABLE ONLY ${n.outbox} IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', ${literal(n.outbox)}, partition);
    -- Nobody can add, claim or settle any more. Only now is it certain what has to stay; it goes into the default partition.
    EXECUTE format('SELECT count(*) FROM %s WHERE ${quoted(stays)}', partition) INTO waiting USING before;
    PERFORM set_config('waybill.moving', 'on', true);
    EXECUTE format('INSERT INTO %s (${columns}) SELECT ${columns} FROM %s WHERE ${quoted(stays)} ORDER BY seq', ${literal(n.outbox)}, partition) USING before;
    GET DIAGNOSTICS moved = ROW_COUNT;
    PERFORM set_config('waybill.moving', '', true);
    IF moved <> waiting THEN
      RAISE EXCEPTION 'only % of % events could be moved out of partition %: does a trigger of yours skip inserts?', moved, waiting, name;
    END IF;
    IF emptied THEN
      EXECUTE format('SELECT EXISTS (SELECT 1 FROM %s WHERE (${quoted(stays)}) IS NOT TRUE)', partition) INTO other USING before;
      IF other THEN
        RAISE EXCEPTION USING ERRCODE = 'WB001';
      END IF;
    END IF;
    EXECUTE format('DROP TABLE %s', partition);
    done := 'dropped';
    events := events - moved;
  EXCEPTION
    WHEN lock_not_available THEN done := 'busy';
    WHEN SQLSTATE 'WB001' THEN done := 'filled';
  END;
  RETURN NEXT;
END $waybill$;
`;

/** Escapes SQL for a PL/pgSQL string that `format` reads. */
function quoted(sql: string): string {
  return sql.replaceAll("'", "''").replaceAll("%", "%%");
}

export const firstPartitions = (n: Names): string => `SELECT * FROM ${n.add_partitions}(${ahead})`;

export function createPartitions(connection: Connection, n: Names, clock: Clock): Partitions {
  const partitioned = async (): Promise<boolean> =>
    (await connection.run(`SELECT partitions IS NOT NULL AS partitioned FROM ${n.meta}`))[0]?.["partitioned"] === "t";
  return {
    async create() {
      if (!(await partitioned())) return nothing;
      const rows = await connection.run(`SELECT name, made, why FROM ${n.add_partitions}($1)`, [ahead]);
      const [made, not] = [rows.filter(({ made }) => made === "t"), rows.filter(({ made }) => made !== "t")];
      return {
        ...nothing,
        created: made.map((row) => row["name"]!),
        undone: not.map((row) => `partition ${row["name"]!} was not made: ${row["why"]!}`),
      };
    },
    async drop(before, who, { emptied, signal }) {
      if (!(await partitioned())) return nothing;
      const left: string[] = [];
      const dropped: string[] = [];
      const undone: string[] = [];
      let [events, moved] = [0, 0];
      for (let tried = 1; ;) {
        const row = signal?.aborted === true ? undefined : await dropOne(connection, n, before, who, emptied, left);
        if (row === undefined) return { created: [], dropped, events, moved, undone };
        const name = row["name"]!;
        if (row["done"] === "dropped") {
          dropped.push(name);
          events += Number(row["events"]);
          moved += Number(row["moved"]);
        } else if (row["done"] === "busy" && tried++ < tries) {
          await clock.sleep(betweenTriesMs, signal);
          continue;
        } else {
          left.push(name);
          undone.push(`partition ${name} was not dropped: ${whyNot[row["done"] as keyof typeof whyNot]}`);
        }
        tried = 1;
      }
    },
  };
}

/** Drops the partition and writes its audit record in one transaction. */
function dropOne(
  connection: Connection,
  n: Names,
  before: Date,
  who: string,
  emptied: boolean,
  left: readonly string[],
): Promise<PgRow | undefined> {
  return connection.transaction(async (run) => {
    const [row] = await run(`SELECT name, done, events, moved FROM ${n.drop_partition}($1::timestamptz, $2::boolean, $3::text[])`, [
      before.toISOString(),
      emptied,
      left,
    ]);
    if (row?.["done"] === "dropped")
      await audit(run, n, "purge", who, Number(row["events"]), {
        before: before.toISOString(),
        partition: row["name"]!,
        moved: Number(row["moved"]),
      });
    return row;
  });
}

const whyNot = undropped(lockTimeout);
