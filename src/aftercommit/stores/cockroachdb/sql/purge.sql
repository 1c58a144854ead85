-- Delete rows of one terminal status that ended long enough ago, oldest first; by their birth if nobody said when.
WITH old AS MATERIALIZED (
  SELECT event_id, handler_id
  FROM {table}
  WHERE status = :status
    AND coalesce(done_at, created_at) <= {now_minus:older_than}
  ORDER BY coalesce(done_at, created_at)
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
)
DELETE FROM {table} AS event
USING old
WHERE event.event_id = old.event_id AND event.handler_id = old.handler_id
RETURNING event.event_id, event.handler_id
