-- No more attempts. Changes nothing of a row unless its lease still stands.
UPDATE {held}
STRAIGHT_JOIN {table} FORCE INDEX ({index:event}) ON {fence}
SET status = 3, attempts = attempts + held.counted, done_at = {now}, last_error = held.error,
    abandoned = 0, done_handlers = COALESCE(held.done, done_handlers), locked_by = NULL, locked_at = NULL, lease_until = NULL
