/** Ready to be claimed by its lane and seq: not delayed, or available by now, which `next_attempt_at` then tells. */
export const pending = "status = 'PENDING' AND (available_at IS NULL OR next_attempt_at IS NOT NULL)";
export const delayed = "status = 'PENDING' AND available_at IS NOT NULL AND next_attempt_at IS NULL";
