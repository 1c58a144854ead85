-- Dead events, oldest first.
SELECT TOP (:limit)
  event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, payload, payload_bytes,
  headers, attempts, last_error, created_at, done_at, position
FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
WHERE status = 3
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
ORDER BY position
