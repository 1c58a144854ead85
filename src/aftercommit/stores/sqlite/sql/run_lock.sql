-- The rows of runs. The write lock is held since before they were listed, so that none can have changed.
SELECT position, event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key,
       payload, payload_bytes, headers, occurred_at, scheduled_at, attempts, abandoned, lease_epoch,
       coalesce(locked_by <> :owner, 0), created_at, available_at, content_type, payload_version, done_handlers, {now}
FROM json_each(:candidates) AS candidate
CROSS JOIN {table} ON position = json_extract(candidate.value, '$[0]')
