-- Unfinished rows behind a place, as they fall due.
SELECT {recorded}
FROM {table_by:pending}
WHERE {unfinished}
  AND (available_at, position) > (:floor_at, :floor_position)
  AND (:status IS NULL OR status = :status)
  AND {matching}
ORDER BY available_at, position
LIMIT :limit
