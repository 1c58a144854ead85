-- How many done rows ended longer ago than that, counted up to a limit.
SELECT count(*)
FROM (
  SELECT status FROM {table}
  WHERE status IN (1, 3) AND status = 1 AND done_at < {now_minus:older_than} LIMIT :limit
) AS old
