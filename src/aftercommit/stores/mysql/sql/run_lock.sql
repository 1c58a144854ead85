-- Lock the rows of runs by their position, and pass over what others have locked.
-- A row that is not as it was seen does not come back. Nothing is locked but these rows: no gap, and no other index.
SELECT {claimed:table}, {table}.lease_epoch, COALESCE(locked_by <> :owner, 0), {now}
FROM JSON_TABLE(:candidates, '$[*]' COLUMNS (
  position BIGINT PATH '$[0]', lease_epoch INT PATH '$[1]', is_due INT PATH '$[2]'
)) AS candidate
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = candidate.position
WHERE status IN (0, 2)
  AND {table}.lease_epoch = candidate.lease_epoch
  AND (available_at <= {now} OR candidate.is_due = 0)
  AND (locked_by IS NULL OR lease_until <= {now})
FOR UPDATE /*!80000 OF {table} */ SKIP LOCKED
