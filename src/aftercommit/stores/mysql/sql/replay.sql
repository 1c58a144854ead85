-- Dead rows of one event are NEW again, with all their attempts, under a new epoch.
UPDATE {table} FORCE INDEX ({index:event})
SET status = 0, attempts = 0, abandoned = 0, available_at = {now}, done_at = NULL, last_error = NULL,
    done_handlers = NULL, locked_by = NULL, locked_at = NULL, lease_until = NULL, lease_epoch = lease_epoch + 1
WHERE status = 3 AND event_id = :event_id AND (:handler_id IS NULL OR handler_id = :handler_id)
