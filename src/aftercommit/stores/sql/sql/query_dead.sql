-- Dead events, oldest first.
SELECT event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, payload, payload_bytes,
       headers, attempts, last_error, {read:created_at}, {read:done_at}, position
FROM {table_by:dead}
WHERE {is_dead}
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
ORDER BY position
LIMIT :limit
