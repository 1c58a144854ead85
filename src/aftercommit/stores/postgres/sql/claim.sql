-- Lease the next rows that are due and free, or whose lease has passed, behind the floor; locked ones are passed over.
WITH due AS MATERIALIZED (
  SELECT *, {now} AS now
  FROM {table}
  WHERE status IN (0, 2)
    AND available_at <= {now}
    AND (available_at, position) > (:floor_at::timestamptz, :floor_position::bigint)
    AND (locked_by IS NULL OR lease_until <= {now})
    AND created_at <= {now} - :skip_recent::bigint * interval '1 microsecond'
  ORDER BY available_at, position
  LIMIT :limit::bigint
  FOR UPDATE SKIP LOCKED
)
UPDATE {table} AS row
SET locked_by = :owner::text, locked_at = {now}, lease_until = {now} + :lock_timeout::bigint * interval '1 microsecond',
    lease_epoch = row.lease_epoch + 1
FROM due
WHERE row.event_id = due.event_id AND row.handler_id = due.handler_id
RETURNING due.position, due.event_id, due.handler_id, due.event_type, due.aggregate_type, due.aggregate_id,
  due.tenant_id, due.event_key, due.payload, due.payload_bytes, due.headers, due.occurred_at AT TIME ZONE 'UTC',
  due.scheduled_at AT TIME ZONE 'UTC', due.attempts, due.abandoned, due.lease_epoch,
  coalesce(due.locked_by <> :owner::text, false), due.created_at AT TIME ZONE 'UTC',
  due.available_at AT TIME ZONE 'UTC', due.content_type, due.payload_version, due.done_handlers,
  due.now AT TIME ZONE 'UTC'
