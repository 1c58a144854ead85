-- Not now and not counted; due again after a delay. Changes nothing of a row unless its lease still stands.
UPDATE {table}
SET status = 2, available_at = {now} + held.delay * interval '1 microsecond',
    abandoned = 0, done_handlers = coalesce(held.done, done_handlers),
    locked_by = NULL, locked_at = NULL, lease_until = NULL
FROM {held}
WHERE {fence}
RETURNING {table}.event_id, {table}.handler_id
