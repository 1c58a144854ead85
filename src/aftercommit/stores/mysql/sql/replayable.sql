-- The next dead rows behind a position, locked until they are replayed.
SELECT position
FROM {table} FORCE INDEX ({index:dead})
WHERE status = 3
  AND position > :position
  AND {matching}
ORDER BY position
LIMIT :limit
FOR UPDATE
