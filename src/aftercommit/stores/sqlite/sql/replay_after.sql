-- The next dead rows behind a position are NEW again, with all their attempts, under a new epoch.
UPDATE {table}
SET status = 0, attempts = 0, abandoned = 0, available_at = {now}, done_at = NULL, last_error = NULL,
    done_handlers = NULL, locked_by = NULL, locked_at = NULL, lease_until = NULL, lease_epoch = lease_epoch + 1
WHERE position IN (
  SELECT position
  FROM {table}
  WHERE status = 3
    AND position > :position
    AND (:event_type IS NULL OR event_type = :event_type)
    AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
  ORDER BY position
  LIMIT :limit
)
RETURNING position
