-- Rows that were born done since then, and that nobody has touched, are NEW: nobody knows whether they were delivered.
UPDATE {table}
SET status = 0, done_at = NULL
WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM {table}
  WHERE status = 1 AND coalesce(done_at, created_at) >= :since::timestamptz AND lease_epoch = 0 AND locked_by IS NULL
  ORDER BY coalesce(done_at, created_at)
  LIMIT :limit
  FOR UPDATE
))
