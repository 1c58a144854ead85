-- Write one event in the caller's transaction; born leased when it has an owner. All times are the database's.
INSERT INTO {table} (
  event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, partition_no,
  payload, payload_bytes, content_type, payload_version, headers, occurred_at, scheduled_at, created_at, available_at,
  locked_by, locked_at, lease_until, lease_epoch
) VALUES (
  :event_id, :handler_id, :event_type, :aggregate_type, :aggregate_id, :tenant_id, :event_key, :partition_no,
  :payload, :payload_bytes, :content_type, :payload_version, :headers, :occurred_at, :scheduled_at, {now},
  coalesce(:available_at, {now} + :delay),
  :owner, CASE WHEN :owner IS NOT NULL THEN {now} END, {now} + :lock_timeout, :epoch
)
