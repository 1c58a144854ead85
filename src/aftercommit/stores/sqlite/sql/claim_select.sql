-- The next rows that are due and free, or whose lease has passed, behind the floor.
SELECT position, event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key,
       payload, payload_bytes, headers, occurred_at, scheduled_at, attempts, abandoned, lease_epoch,
       coalesce(locked_by <> :owner, 0), created_at, available_at, content_type, payload_version, done_handlers, {now}
FROM {table}
WHERE status IN (0, 2)
  AND available_at <= {now}
  AND (available_at, position) > (:floor_at, :floor_position)
  AND (locked_by IS NULL OR lease_until <= {now})
  AND created_at <= {now} - :skip_recent
ORDER BY available_at, position
LIMIT :limit
