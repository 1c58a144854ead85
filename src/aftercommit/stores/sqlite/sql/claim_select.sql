-- The next rows that are due and free, or whose lease has passed, behind the floor.
SELECT {claimed}, lease_epoch, coalesce(locked_by <> :owner, 0), {now}
FROM {table}
WHERE status IN (0, 2)
  AND available_at <= {now}
  AND (available_at, position) > (:floor_at, :floor_position)
  AND (locked_by IS NULL OR lease_until <= {now})
  AND created_at <= {now_minus:skip_recent}
ORDER BY available_at, position
LIMIT :limit
