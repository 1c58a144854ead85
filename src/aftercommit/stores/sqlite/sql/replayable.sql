-- The next dead rows behind a position.
SELECT position
FROM {table}
WHERE status = 3
  AND position > :position
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
ORDER BY position
LIMIT :limit
