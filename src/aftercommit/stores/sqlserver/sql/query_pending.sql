-- Unfinished rows behind a place, as they fall due.
SELECT TOP (:limit) {recorded}
FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
WHERE status IN (0, 2)
  AND available_at >= :floor_at AND (available_at > :floor_at OR position > :floor_position)
  AND (:status IS NULL OR status = :status)
  AND {matching}
ORDER BY available_at, position
