-- The next rows of one status that are due and free, or whose lease has passed, behind the floor. Rows that another
-- claimer has locked are passed over. It reads in the order of the index: a sort would lock every row first.
SELECT position, event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key,
       payload, payload_bytes, headers, occurred_at, scheduled_at, attempts, abandoned, lease_epoch,
       COALESCE(locked_by <> :owner, 0), created_at, available_at, content_type, payload_version, done_handlers, {now}
FROM {table} FORCE INDEX ({index:pending})
WHERE status = :status
  AND available_at <= {now}
  AND (available_at > :floor_at OR (available_at = :floor_at AND position > :floor_position))
  AND (locked_by IS NULL OR lease_until <= {now})
  AND created_at <= {now} - INTERVAL :skip_recent MICROSECOND
ORDER BY available_at, position
LIMIT :limit
FOR UPDATE SKIP LOCKED
