-- The next dead rows behind a position are NEW again, with all their attempts, under a new epoch.
WITH dead AS (
  SELECT TOP (:limit)
    position, status, attempts, abandoned, available_at, done_at, last_error, done_handlers, locked_by, locked_at,
    lease_until, lease_epoch
  FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
  WHERE status = 3
    AND position > :position
    AND (:event_type IS NULL OR event_type = :event_type)
    AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
  ORDER BY position
)
UPDATE dead
SET {new_again}
OUTPUT inserted.position
