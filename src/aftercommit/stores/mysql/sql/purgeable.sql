-- Rows of one terminal status that ended long enough ago, oldest first; by their birth if nobody said when.
SELECT position, event_id, handler_id
FROM {table} FORCE INDEX ({index:ended})
WHERE status = :status
  AND (done_at <= {now_minus:older_than}
       OR (done_at IS NULL AND created_at <= {now_minus:older_than}))
ORDER BY done_at
LIMIT :limit
