-- Delivered, and not to be kept: one row, which needs no join to be found. Nothing unless its lease still stands.
DELETE FROM {table}
WHERE event_id = :event_id AND handler_id = :handler_id
  AND locked_by = :owner AND lease_epoch = :epoch AND status IN (0, 2)
RETURNING event_id, handler_id
