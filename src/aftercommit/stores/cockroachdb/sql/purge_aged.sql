-- Delete what is old enough, whatever its status, oldest first. Each part goes by an index that is there anyway.
WITH pending AS MATERIALIZED (
  SELECT event_id, handler_id, created_at
  FROM {table}
  WHERE {unfinished}
  ORDER BY available_at, position
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
), done AS MATERIALIZED (
  SELECT event_id, handler_id, created_at
  FROM {table}
  WHERE status = 1
  ORDER BY coalesce(done_at, created_at)
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
), dead AS MATERIALIZED (
  SELECT event_id, handler_id, created_at
  FROM {table}
  WHERE status = 3
  ORDER BY coalesce(done_at, created_at)
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
), old AS MATERIALIZED (
  SELECT event_id, handler_id
  FROM (
    SELECT event_id, handler_id, created_at FROM pending
    UNION ALL
    SELECT event_id, handler_id, created_at FROM done
    UNION ALL
    SELECT event_id, handler_id, created_at FROM dead
  ) AS front
  WHERE created_at <= {now_minus:older_than}
  ORDER BY created_at
  LIMIT :limit
)
DELETE FROM {table} AS event
USING old
WHERE event.event_id = old.event_id AND event.handler_id = old.handler_id
RETURNING event.event_id, event.handler_id
