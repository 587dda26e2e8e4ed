import { isHeld } from "./claim.ts";
import { startReleasing } from "./holds.ts";
import { literal, type Names } from "./names.ts";
import { available, now, pending } from "./pending.ts";
import { addedWithin } from "./rows.ts";

/** Distinguishes servers, and restarts of one server. */
export const serverStart = "extract(epoch FROM pg_postmaster_start_time())";
/** The highest number that was drawn. A query of the sequence would say the same, and cost ten times as much. */
export const drawnOf = (n: Names): string => `coalesce(pg_catalog.pg_sequence_last_value(${literal(n.seq)}::regclass), 0)`;

/** Microseconds of `created_at`, as an integer: how a float is printed depends on the session's settings. */
const micros = `CASE WHEN isfinite(created_at) THEN (date_part('epoch', created_at) * 1000000)::bigint
  WHEN created_at > now() THEN 9223372036854775807 ELSE -9223372036854775807 END`;
const names = ["id", "aggregate_type", "aggregate_id", "event_type", "content_type", "idempotency_key"];
const bytesOf = (columns: readonly string[]): string => columns.map((column) => `coalesce(octet_length(${column}), 0)`).join(" + ");

/**
 * Claim and settle as functions: PL/pgSQL keeps the plans of their statements for the session. Planning each time would cost more than the
 * rows of a small window. Each statement of a function has its own snapshot. A cached plan may have been made for an empty table, so no
 * plan may read a whole table.
 *
 * Claims and settles take a shared lock on a lane, because only the relay that owns the lane claims or settles there. Operations that take
 * a lane, give it away, settle a failure or look closer take an exclusive lock.
 */
export const relayFunctions = (n: Names): string => `${claimFunction(n)}
${settleFunction(n)}`;

const language =
  "LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $waybill$\n#variable_conflict use_column";

/** A window must be durable before anything of it is sent, whatever the database's default is. */
const durable = `IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;`;

const claimFunction = (n: Names): string => {
  const open = `open AS MATERIALIZED (SELECT unnest(w.seqs) AS seq FROM ${n.windows} w WHERE w."window" = ANY (known) AND w.relay = mine)`;
  const notOpen = "o.seq NOT IN (SELECT seq FROM open)";
  const columns = `o.seq, ${names.map((name) => `o.${name}`).join(", ")}, o.event_version, o.headers::text AS headers, o.created_at, o.payload,
             o.payload_bytes, o.lane, o.retry_count`;
  const ofLane = `${n.outbox} o WHERE o.lane = t.lane AND ${pending} AND o.seq > floors[t.lane + 1] AND ${notOpen}`;
  const byLane: Way = {
    shares: true,
    some: `(behind OR EXISTS (SELECT 1 FROM ${ofLane}))`,
    rows: `unnest(locked) AS t (lane) CROSS JOIN LATERAL (
        SELECT ${columns}, row_number() OVER (ORDER BY o.seq) AS place FROM ${ofLane} ORDER BY o.seq LIMIT wants[t.lane + 1]
      ) o WHERE (SELECT ordinary FROM seen) ORDER BY o.place, o.seq LIMIT most`,
  };
  // The index of pending rows begins with the lane. This condition does not imply its predicate, so only the primary key can serve it.
  const ofAll = `${n.outbox} o WHERE o.seq > lowest AND ${pending.replace("= 'PENDING'", "IN ('PENDING', '')")} AND ${notOpen}`;
  const bySeq: Way = {
    shares: false,
    some: `t.lane IN (SELECT o.lane FROM ${ofAll})`,
    rows: `(SELECT ${columns} FROM ${ofAll} AND o.lane = ANY (locked) ORDER BY o.seq LIMIT most) o WHERE (SELECT ordinary FROM seen)`,
  };
  return `-- A whole claim, as long as nothing is out of the ordinary; it takes nothing otherwise. The last row says which it was, and what was seen.
-- Arrays have a place for each lane, which is null where the relay does not ask for it.
CREATE FUNCTION ${n.claim}(mine text, epochs bigint[], redrives bigint[], floors bigint[], wants integer[], known text[], stale text[],
  behind boolean, lowest bigint, made_id text, most integer, most_bytes bigint, largest bigint, server numeric, highest bigint)
RETURNS TABLE (seq bigint, id text, aggregate_type text, aggregate_id text, event_type text, content_type text, idempotency_key text,
  event_version integer, headers text, created bigint, payload text, payload_hex text, lane smallint, retry_count integer, ordinary boolean)
${language}
DECLARE
  -- Before the transaction has an id, so that every event that it does not see has a higher number, or an older transaction.
  drawn bigint := ${drawnOf(n)};
  locked smallint[];
  oldest xid8;
BEGIN
  ${durable}
  IF behind OR drawn - lowest > least(most, ${fewRows}) THEN
    ${claimStatements(n, { open, way: byLane })}
  ELSE
    ${claimStatements(n, { open, way: bySeq })}
  END IF;
  IF cardinality(stale) > 0 THEN
    DELETE FROM ${n.windows} WHERE relay = mine AND "window" = ANY (stale);
  END IF;
END $waybill$;`;
};

/**
 * If at most this many numbers were drawn since the lowest floor, one scan of all their rows costs less than one scan per lane. If there
 * are more than the window takes, each lane gets its share.
 */
const fewRows = 500;

/** How rows are found. */
interface Way {
  /** Each lane gives at most what is wanted of it. */
  readonly shares: boolean;
  /** Whether a lane `t` has rows. */
  readonly some: string;
  /** The rows of the locked lanes. */
  readonly rows: string;
}

const claimStatements = (n: Names, { open, way }: { readonly open: string; readonly way: Way }): string => `WITH ${open}
  SELECT coalesce(array_agg(l.lane), '{}'), pg_snapshot_xmin(pg_current_snapshot()) INTO locked, oldest FROM (
    SELECT t.lane FROM ${n.lanes} t WHERE t.owner = mine AND floors[t.lane + 1] IS NOT NULL AND ${way.some} ORDER BY t.lane FOR SHARE OF t) l;
  -- A statement of its own: it sees whatever was done to these lanes until they were locked. It visits each of them once, by one snapshot.
  RETURN QUERY WITH ${open}, seen AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT 1 FROM ${n.lanes} t WHERE t.reopened <> redrives[t.lane + 1]
        OR t.lane = ANY (locked) AND (t.owner = mine AND t.epoch = epochs[t.lane + 1]) IS NOT TRUE)
      AND ${serverStart} = server AND ${drawnOf(n)} >= highest
      AND NOT EXISTS (SELECT 1 FROM ${n.outbox} WHERE status = 'FAILED' AND next_attempt_at <= ${now} AND floors[lane + 1] IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM ${n.outbox} WHERE ${available} AND floors[lane + 1] IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM ${n.holds} WHERE free_to IS NOT NULL AND floors[lane + 1] IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM ${n.suspects} WHERE floors[lane + 1] IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM ${n.destinations} WHERE floors[lane + 1] IS NOT NULL) AS ordinary,
      EXISTS (SELECT 1 FROM ${n.holds}) AS any_held
  ), ready AS MATERIALIZED (
    SELECT o.*, CASE WHEN (SELECT any_held FROM seen) THEN ${isHeld(n)} ELSE false END AS held FROM ${way.rows}
  ), whole AS MATERIALIZED (
    SELECT count(*) AS n, array_agg(seq${way.shares ? " ORDER BY seq" : ""}) AS seqs, coalesce(sum(${bytesOf(["headers", "payload", "payload_bytes", ...names])}), 0) <= most_bytes
      AND coalesce(max(coalesce(octet_length(payload), octet_length(payload_bytes))), 0) <= largest AND NOT coalesce(bool_or(held), false) AS fits
    FROM ready
  ), made AS (
    INSERT INTO ${n.windows} ("window", relay, width, seqs)
    SELECT made_id, mine, n + (SELECT count(*) FROM open), seqs FROM whole WHERE fits AND n > 0
  )
  (SELECT seq, ${names.join(", ")}, event_version, headers, ${micros}, payload, encode(payload_bytes, 'hex'), lane, retry_count, NULL::boolean
   FROM ready WHERE (SELECT fits FROM whole)${way.shares ? " ORDER BY seq" : ""})
  UNION ALL SELECT NULL, pg_current_xact_id_if_assigned()::text, oldest::text, locked::text, '${way.shares}', NULL, NULL, NULL, NULL,
    drawn, NULL, NULL, NULL, NULL, (SELECT ordinary FROM seen) AND (SELECT fits FROM whole);`;

const settleFunction = (n: Names): string => {
  const which = "seq = ANY (given) AND status IN ('PENDING', 'FAILED')";
  const within = addedWithin("added_from", "added_to");
  const published = `UPDATE ${n.outbox} SET status = 'PUBLISHED', published_at = clock_timestamp(), next_attempt_at = NULL WHERE ${which}`;
  return `-- A settle of published events, and whether they were the last of the window; null, with nothing done, where a lane is lost or an event is not
-- in the window.
CREATE FUNCTION ${n.settle}(mine text, settled text, lanes smallint[], epochs bigint[], given bigint[], added_from bigint, added_to bigint, keep boolean)
RETURNS boolean
${language}
DECLARE
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
  DELETE FROM ${n.windows} w WHERE w."window" = settled AND w.relay = mine AND w.seqs = given;
  IF NOT FOUND THEN
    SELECT w.seqs INTO held FROM ${n.windows} w WHERE w."window" = settled AND w.relay = mine FOR UPDATE;
    remaining := ARRAY(SELECT u.seq FROM unnest(held) AS u (seq) WHERE u.seq NOT IN (SELECT unnest(given)));
    IF held IS NULL OR cardinality(held) - cardinality(remaining) <> cardinality(given) THEN
      RETURN NULL;
    END IF;
    IF remaining = '{}' THEN
      DELETE FROM ${n.windows} WHERE "window" = settled;
    ELSE
      UPDATE ${n.windows} SET seqs = remaining WHERE "window" = settled;
    END IF;
  END IF;
  IF keep THEN
    ${published} AND ${within};
  ELSE
    DELETE FROM ${n.outbox} WHERE ${which} AND ${within};
  END IF;
  GET DIAGNOSTICS done = ROW_COUNT;
  -- Somebody may have changed the moment of adding by hand, or have settled the event some other way.
  IF done < cardinality(given) AND keep THEN
    ${published};
  ELSIF done < cardinality(given) THEN
    DELETE FROM ${n.outbox} WHERE ${which};
  END IF;
  IF EXISTS (SELECT 1 FROM ${n.holds} UNION ALL SELECT 1 FROM ${n.suspects}) THEN
    ${startReleasing(n, "given")};
    DELETE FROM ${n.suspects} WHERE seq = ANY (given);
  END IF;
  RETURN remaining = '{}';
END $waybill$;`;
};
