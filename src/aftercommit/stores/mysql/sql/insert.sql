-- Write one event in the caller's transaction; born leased when it has an owner. All times are the database's.
-- Bytes travel as hexadecimal text, which no SQL mode and no character set of the caller's connection can change.
INSERT INTO {table} (
  event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, partition_no,
  payload, payload_bytes, content_type, payload_version, headers, occurred_at, scheduled_at, created_at, available_at,
  locked_by, locked_at, lease_until, lease_epoch
) VALUES (
  :event_id, :handler_id, :event_type, :aggregate_type, :aggregate_id, :tenant_id, :event_key, :partition_no,
  :payload, UNHEX(:payload_bytes), :content_type, :payload_version, :headers, :occurred_at, :scheduled_at, {now},
  COALESCE(:available_at, {now} + INTERVAL LEAST(:delay, 220903200000000000) MICROSECOND),
  :owner, CASE WHEN :owner IS NOT NULL THEN {now} END, {now} + INTERVAL :lock_timeout MICROSECOND, :epoch
)
