-- How many done rows ended longer ago than that, counted up to a limit.
SELECT count(*)
FROM (
  SELECT status FROM {table}
  WHERE status NOT IN (0, 2) AND status = 1 AND coalesce(done_at, created_at) < {now_minus:older_than}
  LIMIT :limit
) AS old
