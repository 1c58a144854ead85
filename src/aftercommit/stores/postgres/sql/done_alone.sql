-- Delivered: one row, which needs no join to be found. Changes nothing unless its lease still stands.
UPDATE {table}
SET status = 1, done_at = {now}, last_error = NULL, abandoned = 0, {free}
WHERE event_id = :event_id AND handler_id = :handler_id
  AND locked_by = :owner AND lease_epoch = :epoch AND status IN (0, 2)
RETURNING event_id, handler_id
