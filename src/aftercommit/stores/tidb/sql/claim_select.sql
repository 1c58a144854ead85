-- The next rows of one status that are due and free, or whose lease has passed, behind the floor. TiDB takes no locks for
-- SKIP LOCKED, so a claimer waits for another one and then sees what is left.
SELECT {claimed}, lease_epoch, COALESCE(locked_by <> :owner, 0), {now}
FROM {table} FORCE INDEX ({index:pending})
WHERE status = :status
  AND available_at <= {now}
  AND (available_at > :floor_at OR (available_at = :floor_at AND position > :floor_position))
  AND (locked_by IS NULL OR lease_until <= {now})
  AND created_at <= {now_minus:skip_recent}
ORDER BY available_at, position
LIMIT :limit
FOR UPDATE
