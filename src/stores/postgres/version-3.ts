import type { PartitionUnit } from "../kit/schema.ts";
import { literal, type Names } from "./names.ts";
import { dropPartition } from "./partitions.ts";

/** Adds columns for an error's code and detail, apart from its text, and for when a letter was redriven. Rewrites no row. */
export const errorColumns = (n: Names): readonly string[] => [
  `ALTER TABLE ${n.letters} ADD COLUMN IF NOT EXISTS whole smallint NOT NULL DEFAULT 1,
  ADD COLUMN IF NOT EXISTS error_detail text NOT NULL DEFAULT '', ADD COLUMN IF NOT EXISTS redriven_at timestamptz`,
  `ALTER TABLE ${n.outbox} ADD COLUMN IF NOT EXISTS error_code text COLLATE "C", ADD COLUMN IF NOT EXISTS error_detail text`,
];

export const version3 = (n: Names, unit: PartitionUnit | null): string => `
-- Letters that were cut say so in their error until now.
-- Attempts are counted from zero once a letter is redriven.
DELETE FROM ${n.attempts} a USING ${n.letters} l WHERE l.consumer = a.consumer AND l.id = a.event_id;
UPDATE ${n.letters} SET whole = 0 WHERE error LIKE '%(the inbox did not take its %';
CREATE INDEX ${n.index("letters", "redriven")} ON ${n.letters} (consumer, topic, seq) WHERE redriven_at IS NOT NULL;
-- The same columns as before, and the new ones at the end, so that rights on the view stay.
CREATE OR REPLACE VIEW ${n.events} AS
SELECT o.seq, o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.event_version, o.payload, o.payload_bytes, o.content_type, o.headers,
       o.idempotency_key, o.lane, o.created_at, o.available_at, o.status, o.retry_count, o.next_attempt_at, o.last_error, o.published_at,
       CASE WHEN w.relay IS NOT NULL AND o.status IN ('PENDING', 'FAILED') THEN 'PUBLISHING' ELSE o.status END AS state,
       o.status = 'PUBLISHED' AS published,
       w.relay AS owner,
       CASE WHEN o.status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') THEN h.why END AS hold,
       o.error_code, o.error_detail
FROM ${n.outbox} o
LEFT JOIN ${n.holds} h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
LEFT JOIN (
  SELECT u.seq, w.relay, l.lane
  FROM ${n.windows} w
  JOIN ${n.relays} r ON r.relay = w.relay AND r.expires_at > clock_timestamp()
  JOIN ${n.lanes} l ON l.owner = w.relay
  CROSS JOIN LATERAL unnest(w.seqs) AS u (seq)
) w ON w.seq = o.seq AND w.lane = o.lane;
-- Whoever may write an error may write all of it.
DO $waybill$
DECLARE
  holder record;
BEGIN
  FOR holder IN SELECT DISTINCT x.grantee AS role FROM pg_catalog.pg_attribute a, pg_catalog.aclexplode(a.attacl) x
    WHERE a.attrelid = ${literal(n.outbox)}::pg_catalog.regclass AND a.attname = 'last_error' AND x.privilege_type = 'UPDATE'
  LOOP
    EXECUTE pg_catalog.format(${literal(`GRANT UPDATE (error_code, error_detail) ON ${n.outbox.replaceAll("%", "%%")} TO %s`)},
      CASE holder.role WHEN 0 THEN 'PUBLIC' ELSE holder.role::pg_catalog.regrole::text END);
  END LOOP;
END $waybill$;
${unit === null ? "" : dropPartition(n)}`;
