-- Lease the next rows that are due and free, or whose lease has passed, behind the floor; locked ones are passed over.
DECLARE @now datetime2(6) = {now}, @owner nvarchar(256) = :owner, @lease bigint = :lock_timeout,
  @skip bigint = :skip_recent, @floor_at datetime2(6) = :floor_at, @floor_position bigint = :floor_position;
WITH due AS (
  SELECT TOP (:limit)
    position, event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key,
    payload, payload_bytes, headers, occurred_at, scheduled_at, attempts, abandoned, lease_epoch, locked_by, locked_at,
    lease_until, created_at, available_at, content_type, payload_version, done_handlers
  FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, INDEX({index:pending}))
  WHERE status IN (0, 2)
    AND available_at <= @now
    AND available_at >= @floor_at AND (available_at > @floor_at OR position > @floor_position)
    AND (locked_by IS NULL OR lease_until <= @now)
    AND created_at <= DATEADD(day, -@skip / 1000000 / 86400, DATEADD(second, -@skip / 1000000 % 86400,
      DATEADD(microsecond, -@skip % 1000000, @now)))
  ORDER BY available_at, position
)
UPDATE due
SET locked_by = @owner, locked_at = @now, lease_epoch = lease_epoch + 1,
    lease_until = DATEADD(day, @lease / 1000000 / 86400, DATEADD(second, @lease / 1000000 % 86400,
      DATEADD(microsecond, @lease % 1000000, @now)))
OUTPUT deleted.position, deleted.event_id, deleted.handler_id, deleted.event_type, deleted.aggregate_type,
  deleted.aggregate_id, deleted.tenant_id, deleted.event_key, deleted.payload, deleted.payload_bytes, deleted.headers,
  deleted.occurred_at, deleted.scheduled_at, deleted.attempts, deleted.abandoned, deleted.lease_epoch,
  CASE WHEN deleted.locked_by <> @owner THEN 1 ELSE 0 END, deleted.created_at, deleted.available_at,
  deleted.content_type, deleted.payload_version, deleted.done_handlers, @now
