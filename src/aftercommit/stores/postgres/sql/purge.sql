-- Delete rows of one terminal status that ended long enough ago, oldest first; by their birth if nobody said when.
WITH old AS MATERIALIZED (
  SELECT ctid AS row
  FROM {table}
  WHERE status = :status
    AND coalesce(done_at, created_at) <= {now_minus:older_than}
  ORDER BY coalesce(done_at, created_at)
  LIMIT :limit
  FOR UPDATE SKIP LOCKED
)
DELETE FROM {table}
WHERE ctid = ANY (ARRAY(SELECT row FROM old))
RETURNING event_id, handler_id
