-- Failed and counted; due again after a delay. Changes nothing of a row unless its lease still stands.
UPDATE {table}
SET status = 2, attempts = attempts + 1, last_error = held.error,
    available_at = DATEADD(day, held.delay / 1000000 / 86400, DATEADD(second, held.delay / 1000000 % 86400,
      DATEADD(microsecond, held.delay % 1000000, {now}))),
    abandoned = 0, done_handlers = COALESCE(held.done, done_handlers), locked_by = NULL, locked_at = NULL, lease_until = NULL
OUTPUT inserted.event_id, inserted.handler_id
FROM {table} WITH (ROWLOCK)
INNER JOIN {held} ON {fence} AND ids_size = held.size
