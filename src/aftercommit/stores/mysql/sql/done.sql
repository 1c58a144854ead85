-- Delivered. Changes nothing of a row unless its lease still stands.
UPDATE {held}
STRAIGHT_JOIN {table} FORCE INDEX ({index:event}) ON {fence}
SET status = 1, done_at = {now}, last_error = NULL, abandoned = 0, locked_by = NULL, locked_at = NULL, lease_until = NULL
