/** Every event with its derived state, as the view shows it, judged at a moment given in SQL. */
export function eventsAt(moment: string): string {
  return `
SELECT o.*,
       CASE WHEN w.relay IS NOT NULL AND o.status IN ('PENDING', 'FAILED') THEN 'PUBLISHING' ELSE o.status END AS state,
       o.status = 'PUBLISHED' AS published,
       w.relay AS owner,
       CASE WHEN o.status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') THEN h.why END AS hold
FROM outbox o
LEFT JOIN waybill_holds h ON h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id
LEFT JOIN (
  ${publishingAt(moment)}
) w ON w.seq = o.seq`;
}

/** The events that relays with a live lease have in hand. */
export function publishingAt(moment: string): string {
  return `SELECT j.value AS seq, w.relay
  FROM waybill_windows w
  JOIN waybill_lanes l ON l.lane = w.lane AND l.owner = w.relay AND l.epoch = w.epoch
  JOIN waybill_relays r ON r.relay = w.relay AND r.expires_at > ${moment}
  JOIN json_each(w.seqs) j`;
}
