-- The next dead rows behind a position, locked until they are replayed.
SELECT position
FROM {table} FORCE INDEX ({index:dead})
WHERE status = 3
  AND position > :position
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
ORDER BY position
LIMIT :limit
FOR UPDATE
