-- How many done rows ended longer ago than that, counted up to a limit.
SELECT COUNT_BIG(*)
FROM (
  SELECT TOP (:limit) status
  FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
  WHERE status IN (1, 3) AND status = 1 AND done_at < {now_minus:older_than}
) AS old
