-- Write one event in the caller's transaction; born leased when it has an owner. All times are the database's.
DECLARE @now datetime2(6) = {now}, @delay bigint = :delay, @lease bigint = :lock_timeout,
  @owner nvarchar(256) = :owner;
INSERT INTO {table} (
  event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, partition_no,
  payload, payload_bytes, content_type, payload_version, headers, occurred_at, scheduled_at, created_at,
  available_at, locked_by, locked_at, lease_until, lease_epoch
) VALUES (
  :event_id, :handler_id, :event_type, :aggregate_type, :aggregate_id, :tenant_id, :event_key, :partition_no,
  CAST(:payload AS nvarchar(max)), CAST(:payload_bytes AS varbinary(max)), :content_type, :payload_version,
  CAST(:headers AS nvarchar(max)), :occurred_at, CAST(:scheduled_at AS datetime2(6)), @now,
  COALESCE(CAST(:available_at AS datetime2(6)),
    DATEADD(day, @delay / 1000000 / 86400, DATEADD(second, @delay / 1000000 % 86400,
      DATEADD(microsecond, @delay % 1000000, @now)))),
  @owner, CASE WHEN @owner IS NOT NULL THEN @now END,
  DATEADD(day, @lease / 1000000 / 86400, DATEADD(second, @lease / 1000000 % 86400,
    DATEADD(microsecond, @lease % 1000000, @now))), :epoch
)
