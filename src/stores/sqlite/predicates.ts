import { LANES } from "../../core/lane.ts";

/** Ready to be claimed by lane and seq: not delayed, or available by now, which `next_attempt_at` then shows. */
export const pending = "status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL)";
export const delayed = "status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL";
/** Without a lane that a relay can own: plain SQL leaves the lane out, or has written an invalid one. */
export const unlaned = `(typeof(lane) <> 'integer' OR lane NOT BETWEEN 0 AND ${LANES - 1})`;
export const now = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
