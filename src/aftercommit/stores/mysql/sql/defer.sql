-- Not now and not counted; due again after a delay. Changes nothing of a row unless its lease still stands.
UPDATE {held}
STRAIGHT_JOIN {table} FORCE INDEX ({index:event}) ON {fence}
SET status = 2, available_at = {now} + INTERVAL held.delay MICROSECOND,
    abandoned = 0, done_handlers = COALESCE(held.done, done_handlers), locked_by = NULL, locked_at = NULL, lease_until = NULL
