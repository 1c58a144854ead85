-- Lease the next rows that are due and free, or whose lease has passed, behind the floor; locked ones are passed over.
-- By the primary key: there is no ctid.
WITH due AS MATERIALIZED (
  SELECT event_id, handler_id, locked_by
  FROM {table}
  WHERE {unfinished}
    AND available_at <= {now}
    AND (available_at, position) > (:floor_at, :floor_position)
    AND (locked_by IS NOT NULL AND lease_until > {now}) IS NOT TRUE
    AND (created_at > {now_minus:skip_recent}) IS NOT TRUE
  ORDER BY available_at, position
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
)
UPDATE {table} AS event
SET locked_by = :owner, locked_at = {now}, lease_until = {now_plus:lock_timeout},
    lease_epoch = event.lease_epoch + 1
FROM due
WHERE event.event_id = due.event_id AND event.handler_id = due.handler_id
RETURNING {claimed:event}, event.lease_epoch - 1, coalesce(due.locked_by <> :owner, false), {now} AT TIME ZONE 'UTC'
