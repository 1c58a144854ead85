-- Delivered. Changes nothing of a row unless its lease still stands.
UPDATE {table}
SET status = 1, done_at = {now}, last_error = NULL, abandoned = 0, locked_by = NULL, locked_at = NULL, lease_until = NULL
FROM {held:keys}
WHERE {fence}
RETURNING {table}.event_id, {table}.handler_id
