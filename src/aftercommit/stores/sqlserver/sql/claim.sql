-- Lease the next rows that are due and free, or whose lease has passed, behind the floor; locked ones are passed over.
WITH due AS (
  SELECT TOP (:limit) {claimed}, lease_epoch, locked_by, locked_at, lease_until
  FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, INDEX({index:pending}))
  WHERE status IN (0, 2)
    AND available_at <= {now}
    AND available_at >= :floor_at AND (available_at > :floor_at OR position > :floor_position)
    AND (locked_by IS NULL OR lease_until <= {now})
    AND created_at <= {now_minus:skip_recent}
  ORDER BY available_at, position
)
UPDATE due
SET locked_by = :owner, locked_at = {now}, lease_until = {now_plus:lock_timeout}, lease_epoch = lease_epoch + 1
OUTPUT {claimed:deleted}, deleted.lease_epoch, CASE WHEN deleted.locked_by <> :owner THEN 1 ELSE 0 END, {now}
