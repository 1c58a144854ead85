-- Delivered. Changes nothing of a row unless its lease still stands.
UPDATE {table}
SET status = 1, done_at = {now}, last_error = NULL, abandoned = 0, locked_by = NULL, locked_at = NULL, lease_until = NULL
OUTPUT inserted.event_id, inserted.handler_id
FROM {table} WITH (ROWLOCK)
INNER JOIN {held} ON {fence} AND ids_size = held.size
