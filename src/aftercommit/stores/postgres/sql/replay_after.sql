-- The next dead rows behind a position are NEW again, with all their attempts, under a new epoch.
WITH next AS MATERIALIZED (
  SELECT event_id, handler_id
  FROM {table}
  WHERE status >= 3
    AND position > :position::bigint
    AND (:event_type::text IS NULL OR event_type = :event_type::text)
    AND (:aggregate_type::text IS NULL OR aggregate_type = :aggregate_type::text)
  ORDER BY position
  LIMIT :limit::bigint
  FOR UPDATE
)
UPDATE {table} AS row
SET status = 0, attempts = 0, abandoned = 0, available_at = {now}, done_at = NULL, last_error = NULL,
    done_handlers = NULL, locked_by = NULL, locked_at = NULL, lease_until = NULL, lease_epoch = lease_epoch + 1
FROM next
WHERE row.event_id = next.event_id AND row.handler_id = next.handler_id
RETURNING row.position
