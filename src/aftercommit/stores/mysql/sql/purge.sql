-- Delete rows of one terminal status that ended long enough ago, oldest first; by their birth if nobody said when.
DELETE {table}
FROM (
  SELECT position
  FROM {table} FORCE INDEX ({index:ended})
  WHERE status = :status
    AND (done_at < {now_minus:older_than}
         OR (done_at IS NULL AND created_at < {now_minus:older_than}))
  ORDER BY done_at
  LIMIT :limit
) AS old
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = old.position
WHERE status = :status
