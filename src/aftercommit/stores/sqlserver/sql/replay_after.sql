-- The next dead rows behind a position are NEW again, with all their attempts, under a new epoch.
WITH dead AS (
  SELECT TOP (:limit)
    position, status, attempts, abandoned, available_at, done_at, last_error, done_handlers, locked_by, locked_at,
    lease_until, lease_epoch
  FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
  WHERE status = 3
    AND position > :position
    AND {matching}
  ORDER BY position
)
UPDATE dead
SET {new_again}
OUTPUT inserted.position
