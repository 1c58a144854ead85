-- The next dead rows behind a position.
SELECT position
FROM {table}
WHERE status = 3
  AND position > :position
  AND {matching}
ORDER BY position
LIMIT :limit
