/** Adds columns for the code and detail of an error, apart from its text, and for when a letter was redriven. No row is rewritten. */
export const toVersion3 = `
ALTER TABLE outbox ADD COLUMN error_code TEXT;
ALTER TABLE outbox ADD COLUMN error_detail TEXT;
ALTER TABLE waybill_letters ADD COLUMN error_detail TEXT NOT NULL DEFAULT '';
ALTER TABLE waybill_letters ADD COLUMN whole INTEGER NOT NULL DEFAULT 1;
ALTER TABLE waybill_letters ADD COLUMN redriven_at TEXT;
-- Letters that were cut say so in their error until now.
-- Attempts are counted from zero once a letter is redriven.
DELETE FROM waybill_attempts WHERE (consumer, event_id) IN (SELECT consumer, id FROM waybill_letters);
UPDATE waybill_letters SET whole = 0 WHERE error LIKE '%(the inbox did not take its %';
CREATE INDEX waybill_letters_redriven ON waybill_letters (consumer, topic, seq) WHERE redriven_at IS NOT NULL;
`;
