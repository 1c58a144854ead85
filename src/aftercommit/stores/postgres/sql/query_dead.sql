-- Dead events, oldest first.
SELECT event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key, payload, payload_bytes,
       headers, attempts, last_error, created_at AT TIME ZONE 'UTC', done_at AT TIME ZONE 'UTC', position
FROM {table}
WHERE status >= 3
  AND (:event_type::text IS NULL OR event_type = :event_type::text)
  AND (:aggregate_type::text IS NULL OR aggregate_type = :aggregate_type::text)
ORDER BY position
LIMIT :limit::bigint
