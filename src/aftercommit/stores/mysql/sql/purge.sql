-- Delete these rows, as long as they are of that status and ended long enough ago.
DELETE {table}
FROM JSON_TABLE(:positions, '$[*]' COLUMNS (position BIGINT PATH '$')) AS old
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = old.position
WHERE status = :status
  AND (done_at <= {now_minus:older_than}
       OR (done_at IS NULL AND created_at <= {now_minus:older_than}))
