-- The next dead rows behind a position are NEW again, with all their attempts, under a new epoch.
WITH next AS MATERIALIZED (
  SELECT event_id, handler_id
  FROM {table}
  WHERE status >= 3
    AND position > :position
    AND {matching}
  ORDER BY position
  LIMIT :limit
  FOR UPDATE
)
UPDATE {table} AS event
SET {new_again}
FROM next
WHERE event.event_id = next.event_id AND event.handler_id = next.handler_id
RETURNING event.position
