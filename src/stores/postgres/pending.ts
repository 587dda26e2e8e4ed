/** Ready to be claimed by lane and seq: not delayed, or already available, which a set `next_attempt_at` shows. */
export const pending = "status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL)";
export const delayed = "status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL";
/** The server's clock as the statement runs, so after its snapshot. A bare volatile call would keep the planner from using the index. */
export const now = "(SELECT clock_timestamp())";
export const available = `${delayed} AND available_at <= ${now}`;
