-- The next rows of one status that are due and free, or whose lease has passed, behind the floor. They are looked for
-- without a lock, a few batches far, and locked by their position: a scan that locks keeps the rows of others locked
-- that it only passes by (MariaDB 10.11), and one that sorts locks all there are. Rows that another claimer has locked
-- are passed over, so the next claimer gets the next batch.
SELECT {claimed:table}, {table}.lease_epoch, COALESCE(locked_by <> :owner, 0), {now}
FROM (
  SELECT position
  FROM {table} FORCE INDEX ({index:pending})
  WHERE status = :status
    AND available_at <= {now}
    AND (available_at > :floor_at OR (available_at = :floor_at AND position > :floor_position))
    AND (locked_by IS NULL OR lease_until <= {now})
    AND created_at <= {now_minus:skip_recent}
  ORDER BY available_at, position
  LIMIT :reach
) AS candidate
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = candidate.position
WHERE status = :status AND available_at <= {now} AND (locked_by IS NULL OR lease_until <= {now})
LIMIT :limit
FOR UPDATE /*!80000 OF {table} */ SKIP LOCKED
