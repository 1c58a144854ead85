-- No more attempts. Changes nothing of a row unless its lease still stands.
UPDATE {table}
SET status = 3, attempts = attempts + held.counted, done_at = {now}, last_error = held.error,
    abandoned = 0, done_handlers = COALESCE(held.done, done_handlers), locked_by = NULL, locked_at = NULL, lease_until = NULL
OUTPUT inserted.event_id, inserted.handler_id
FROM {table} WITH (ROWLOCK)
INNER JOIN {held} ON {fence} AND ids_size = held.size
