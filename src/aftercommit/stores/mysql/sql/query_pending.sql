-- Rows of one unfinished status behind a place, as they fall due.
SELECT {recorded}
FROM {table_by:pending}
WHERE status = :status
  AND (available_at > :floor_at OR (available_at = :floor_at AND position > :floor_position))
  AND {matching}
ORDER BY available_at, position
LIMIT :limit
