-- How many done rows ended longer ago than that, counted up to a limit.
SELECT count(*)
FROM (
  SELECT status FROM {table_by:ended} WHERE status = 1 AND done_at < {now_minus:older_than} LIMIT :limit
) AS old
