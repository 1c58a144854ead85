-- Write many events in the caller's transaction, in order; born leased where they have an owner.
INSERT INTO {table} (
  event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, partition_no,
  payload, payload_bytes, content_type, payload_version, headers, occurred_at, scheduled_at, created_at, available_at,
  locked_by, locked_at, lease_until, lease_epoch
)
SELECT
  event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, partition_no,
  payload, payload_bytes, content_type, payload_version, headers, occurred_at, scheduled_at, {now},
  coalesce(available_at, {now} + delay * interval '1 microsecond'),
  owner, CASE WHEN owner IS NOT NULL THEN {now} END, {now} + lock_timeout * interval '1 microsecond', epoch
FROM unnest(
  :event_id::text[], :handler_id::text[], :event_type::text[], :aggregate_type::text[], :aggregate_id::text[],
  :tenant_id::text[], :event_key::text[], :partition_no::smallint[], :payload::text[], :payload_bytes::bytea[],
  :content_type::text[], :payload_version::integer[], :headers::text[], :occurred_at::timestamptz[],
  :scheduled_at::timestamptz[], :available_at::timestamptz[], :delay::bigint[], :owner::text[],
  :lock_timeout::bigint[], :epoch::integer[]
) WITH ORDINALITY AS new (
  event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, partition_no, payload,
  payload_bytes, content_type, payload_version, headers, occurred_at, scheduled_at, available_at, delay, owner,
  lock_timeout, epoch, number
)
ORDER BY number
