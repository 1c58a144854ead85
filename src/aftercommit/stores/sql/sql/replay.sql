-- Dead rows of one event are NEW again, with all their attempts, under a new epoch.
UPDATE {table_by:event}
SET {new_again}
WHERE status = 3 AND event_id = :event_id AND (:handler_id IS NULL OR handler_id = :handler_id)
