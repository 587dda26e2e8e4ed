/** Ready to be claimed by its lane and seq: not delayed, or available by now, which `next_attempt_at` then tells. */
export const pending = "status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL)";
export const delayed = "status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL";
/** By the server's clock when the statement runs, and so after its snapshot. A bare volatile call would keep the planner from using the index. */
export const now = "(SELECT clock_timestamp())";
export const available = `${delayed} AND available_at <= ${now}`;
