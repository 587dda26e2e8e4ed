import { literal, type Names } from "./names.ts";

/** The error of a statement that would finish another transaction's marks. */
export const markLost = { state: "22P02", message: "waybill: another transaction" } as const;

/** The transaction that makes a mark, and the process to end if that transaction hangs. */
export const maker = "pg_current_xact_id()::text || ' ' || pg_backend_pid()";

/**
 * The first and the last statement of an event that is applied alone. They are in PL/pgSQL, which keeps their plans for the session:
 * planning them for each event costs PostgreSQL more than running them. A cached plan may have been made for an empty table, so the
 * deletion must not read a whole table.
 */
export const inboxFunctions = (
  n: Names,
): string => `-- Marks an event. Answers which transaction did, or NULL when the event has a mark already.
CREATE FUNCTION ${n.mark}(mine text, event text, version integer) RETURNS text LANGUAGE plpgsql AS $waybill$
DECLARE
  made text;
BEGIN
  INSERT INTO ${n.inbox} (consumer, event_id, processed_at, handler_version, finished) VALUES (mine, event, clock_timestamp(), version, false)
  ON CONFLICT DO NOTHING RETURNING ${maker} INTO made;
  RETURN made;
END $waybill$;
-- Finishes the mark, if this is the transaction that made it. A mark that was deleted meanwhile is made again. Some libraries cannot read void.
CREATE FUNCTION ${n.finish}(mine text, event text, version integer, made text) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $waybill$
BEGIN
  IF pg_current_xact_id()::text <> made THEN
    RAISE EXCEPTION USING ERRCODE = ${literal(markLost.state)}, MESSAGE = ${literal(markLost.message)};
  END IF;
  DELETE FROM ${n.attempts} WHERE consumer = mine AND event_id = event;
  INSERT INTO ${n.inbox} (consumer, event_id, processed_at, handler_version, finished) VALUES (mine, event, clock_timestamp(), version, true)
  ON CONFLICT (consumer, event_id) DO UPDATE SET finished = true;
  RETURN true;
END $waybill$;`;
