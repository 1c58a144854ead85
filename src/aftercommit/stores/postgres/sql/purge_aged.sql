-- Delete what is old enough, whatever its status, oldest first. Each part goes by an index that is there anyway.
WITH pending AS MATERIALIZED (
  SELECT ctid AS row, created_at
  FROM {table}
  WHERE {unfinished}
  ORDER BY available_at, position
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
), done AS MATERIALIZED (
  SELECT ctid AS row, created_at
  FROM {table}
  WHERE status = 1
  ORDER BY coalesce(done_at, created_at)
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
), dead AS MATERIALIZED (
  SELECT ctid AS row, created_at
  FROM {table}
  WHERE status = 3
  ORDER BY coalesce(done_at, created_at)
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
)
DELETE FROM {table}
WHERE ctid = ANY (ARRAY(
  SELECT row
  FROM (TABLE pending UNION ALL TABLE done UNION ALL TABLE dead) AS front
  WHERE created_at <= {now_minus:older_than}
  ORDER BY created_at
  LIMIT :limit
))
RETURNING event_id, handler_id
