import { isHeld } from "./claim.ts";
import { startReleasing } from "./holds.ts";
import type { Names } from "./names.ts";
import { available, now, pending } from "./pending.ts";
import { addedWithin } from "./rows.ts";

/** Tells one server, and one run of it, from another. */
export const serverStart = "extract(epoch FROM pg_postmaster_start_time())";
/** The highest number that a sequence has given out. */
export const drawnOf = "CASE WHEN s.is_called THEN s.last_value ELSE 0 END";

/** Of `created_at`, as a whole number: floats come as the session's settings say. */
const micros = `CASE WHEN isfinite(created_at) THEN (date_part('epoch', created_at) * 1000000)::bigint
  WHEN created_at > now() THEN 9223372036854775807 ELSE -9223372036854775807 END`;
const names = ["id", "aggregate_type", "aggregate_id", "event_type", "content_type", "idempotency_key"];
const bytesOf = (columns: readonly string[]): string => columns.map((column) => `coalesce(octet_length(${column}), 0)`).join(" + ");

/**
 * What a relay does all day, in functions: PL/pgSQL keeps the plans of their statements for the session, which would otherwise cost more than
 * the rows of a small window. Each statement of a function has a snapshot of its own. A plan that is kept may have been made for an empty
 * table, so none may read a whole one.
 *
 * Claims and settles share the lock of a lane, because the relay that owns it is the only one that claims or settles there. Operations that
 * take a lane, give it away, settle a failure or look closer lock it alone.
 */
export const relayFunctions = (n: Names): string => `${claimFunction(n)}
${settleFunction(n)}`;

const language =
  "LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $waybill$\n#variable_conflict use_column";

const claimFunction = (n: Names): string => {
  const ready = (floor: string, lane: string): string =>
    `${n.outbox} o WHERE o.lane = ${lane} AND ${pending} AND o.seq > ${floor} AND o.seq NOT IN (SELECT seq FROM open)`;
  const open = `open AS MATERIALIZED (SELECT unnest(w.seqs) AS seq FROM ${n.windows} w WHERE w."window" = ANY (known) AND w.relay = mine)`;
  return `-- A whole claim, as long as nothing is out of the ordinary; it takes nothing otherwise. The last row says which it was, and what was seen.
CREATE FUNCTION ${n.claim}(mine text, lanes smallint[], epochs bigint[], redrives bigint[], floors bigint[], wants integer[], known text[],
  stale text[], behind boolean, made_id text, most integer, most_bytes bigint, largest bigint, server numeric, highest bigint)
RETURNS TABLE (seq bigint, id text, aggregate_type text, aggregate_id text, event_type text, content_type text, idempotency_key text,
  event_version integer, headers text, created bigint, payload text, payload_hex text, lane smallint, retry_count integer, ordinary boolean)
${language}
DECLARE
  -- Before the transaction has an id, so that every event that it does not see has a higher number, or an older transaction.
  drawn bigint := (SELECT ${drawnOf} FROM ${n.seq} s);
  locked smallint[];
  oldest xid8;
  first_open bigint;
BEGIN
  WITH ${open}
  SELECT coalesce(array_agg(l.lane), '{}'), pg_snapshot_xmin(pg_current_snapshot()), (SELECT min(seq) FROM open)
  INTO locked, oldest, first_open FROM (
    SELECT t.lane FROM unnest(lanes, floors) AS g (lane, floor) JOIN ${n.lanes} t ON t.lane = g.lane
    WHERE t.owner = mine AND (behind OR EXISTS (SELECT 1 FROM ${ready("g.floor", "g.lane")})) ORDER BY t.lane FOR SHARE OF t) l;
  -- A statement of its own: it sees whatever was done to these lanes until they were locked. It visits each of them once, by one snapshot.
  RETURN QUERY WITH l AS MATERIALIZED (
    SELECT g.lane, g.floor, g.want FROM unnest(lanes, epochs, redrives, floors, wants) AS g (lane, epoch, reopened, floor, want)
    JOIN ${n.lanes} t ON t.lane = g.lane AND t.owner = mine AND t.epoch = g.epoch AND t.reopened = g.reopened
    WHERE g.lane = ANY (locked)
  ), ${open}, seen AS MATERIALIZED (
    SELECT (SELECT count(*) FROM l) = cardinality(locked)
      AND NOT EXISTS (SELECT 1 FROM unnest(lanes, redrives) AS g (lane, reopened) JOIN ${n.lanes} t ON t.lane = g.lane AND t.reopened <> g.reopened)
      AND ${serverStart} = server AND (SELECT ${drawnOf} FROM ${n.seq} s) >= highest
      AND NOT EXISTS (SELECT 1 FROM ${n.outbox} WHERE status = 'FAILED' AND next_attempt_at <= ${now} AND lane = ANY (lanes))
      AND NOT EXISTS (SELECT 1 FROM ${n.outbox} WHERE ${available} AND lane = ANY (lanes))
      AND NOT EXISTS (SELECT 1 FROM ${n.holds} WHERE free_to IS NOT NULL AND lane = ANY (lanes))
      AND NOT EXISTS (SELECT 1 FROM ${n.suspects} WHERE lane = ANY (lanes))
      AND NOT EXISTS (SELECT 1 FROM ${n.destinations} WHERE lane = ANY (lanes)) AS ordinary,
      EXISTS (SELECT 1 FROM ${n.holds}) AS any_held
  ), ready AS MATERIALIZED (
    SELECT o.*, CASE WHEN (SELECT any_held FROM seen) THEN ${isHeld(n)} ELSE false END AS held
    FROM l CROSS JOIN LATERAL (
      SELECT o.seq, ${names.map((name) => `o.${name}`).join(", ")}, o.event_version, o.headers::text AS headers, o.created_at, o.payload,
             o.payload_bytes, o.lane, o.retry_count, row_number() OVER (ORDER BY o.seq) AS place
      FROM ${ready("l.floor", "l.lane")} ORDER BY o.seq LIMIT l.want
    ) o WHERE (SELECT ordinary FROM seen) ORDER BY o.place, o.seq LIMIT most
  ), fits AS MATERIALIZED (
    SELECT coalesce(sum(${bytesOf(["headers", "payload", "payload_bytes", ...names])}), 0) <= most_bytes
      AND coalesce(max(coalesce(octet_length(payload), octet_length(payload_bytes))), 0) <= largest AND NOT coalesce(bool_or(held), false) AS fits
    FROM ready
  ), made AS (
    INSERT INTO ${n.windows} ("window", relay, width, seqs)
    SELECT made_id, mine, count(*) + (SELECT count(*) FROM open), array_agg(seq ORDER BY seq)
    FROM ready WHERE (SELECT fits FROM fits) HAVING count(*) > 0
  )
  (SELECT seq, ${names.join(", ")}, event_version, headers, ${micros}, payload, encode(payload_bytes, 'hex'), lane, retry_count, NULL::boolean
   FROM ready WHERE (SELECT fits FROM fits) ORDER BY seq)
  UNION ALL SELECT (SELECT min(seq) FROM open), pg_current_xact_id_if_assigned()::text, oldest::text, locked::text, NULL, NULL, NULL, NULL, NULL,
    drawn, NULL, first_open::text, NULL, NULL, (SELECT ordinary FROM seen) AND (SELECT fits FROM fits);
  IF cardinality(stale) > 0 THEN
    DELETE FROM ${n.windows} WHERE relay = mine AND "window" = ANY (stale);
  END IF;
END $waybill$;`;
};

const settleFunction = (n: Names): string => {
  const which = "seq = ANY (given) AND status IN ('PENDING', 'FAILED')";
  const within = addedWithin("added_from", "added_to");
  const published = `UPDATE ${n.outbox} SET status = 'PUBLISHED', published_at = clock_timestamp(), next_attempt_at = NULL WHERE ${which}`;
  return `-- A settle of published events, and true, or nothing at all where a lane is lost or an event is not in the window. Second, whether that was
-- the last of the window.
CREATE FUNCTION ${n.settle}(mine text, settled text, lanes smallint[], epochs bigint[], given bigint[], added_from bigint, added_to bigint, keep boolean)
RETURNS TABLE (ordinary boolean, ended boolean)
${language}
DECLARE
  owned bigint;
  held bigint[];
  remaining bigint[];
  done bigint;
BEGIN
  SELECT count(*) INTO owned FROM unnest(lanes, epochs) AS g (lane, epoch) JOIN (
    SELECT t.lane, t.epoch FROM ${n.lanes} t WHERE t.owner = mine AND t.lane = ANY (lanes) ORDER BY t.lane FOR SHARE
  ) t ON t.lane = g.lane AND t.epoch = g.epoch;
  -- Alone: a settle that its relay has given up may still be at work.
  SELECT w.seqs INTO held FROM ${n.windows} w WHERE w."window" = settled AND w.relay = mine FOR UPDATE;
  remaining := ARRAY(SELECT u.seq FROM unnest(held) AS u (seq) WHERE u.seq NOT IN (SELECT unnest(given)));
  IF owned < cardinality(lanes) OR held IS NULL OR cardinality(held) - cardinality(remaining) <> cardinality(given) THEN
    RETURN QUERY SELECT false, false;
    RETURN;
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
  IF EXISTS (SELECT 1 FROM ${n.holds}) THEN
    ${startReleasing(n, "given")};
  END IF;
  DELETE FROM ${n.suspects} WHERE seq = ANY (given);
  IF remaining = '{}' THEN
    DELETE FROM ${n.windows} WHERE "window" = settled;
  ELSE
    UPDATE ${n.windows} SET seqs = remaining WHERE "window" = settled;
  END IF;
  RETURN QUERY SELECT true, remaining = '{}';
END $waybill$;`;
};
