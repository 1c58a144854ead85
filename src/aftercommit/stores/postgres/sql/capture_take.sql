-- Rows that were born done and that nobody has touched since are NEW, and leased. Those that are so by now stay so.
UPDATE {table} AS row
SET status = 0, done_at = NULL, locked_by = held.owner, locked_at = {now}, lease_until = {now_plus:lock_timeout},
    lease_epoch = 1
FROM unnest(:event_id::text::text[], :handler_id::text::text[], :owner::text::text[]) AS held (event_id, handler_id, owner)
WHERE row.event_id = held.event_id AND row.handler_id = held.handler_id
  AND (
    (row.status IN (1, 2) AND row.lease_epoch = 0 AND row.locked_by IS NULL)
    OR (row.status = 0 AND row.lease_epoch = 1 AND row.locked_by = held.owner)
  )
RETURNING row.event_id, row.handler_id
