-- Delete rows of one terminal status that ended long enough ago, oldest first; by their birth if nobody said when.
DELETE FROM {table}
WHERE position IN (
  SELECT position
  FROM (
    SELECT position, done_at AS ended_at
    FROM {table}
    WHERE status IN (1, 3) AND status = :status AND done_at <= {now_minus:older_than}
    UNION ALL
    SELECT position, created_at
    FROM {table}
    WHERE status IN (1, 3) AND status = :status AND done_at IS NULL AND created_at <= {now_minus:older_than}
    ORDER BY ended_at
    LIMIT :limit
  )
)
RETURNING event_id, handler_id
