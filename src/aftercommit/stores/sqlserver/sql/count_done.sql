-- How many rows are done, counted up to a limit.
SELECT COUNT_BIG(*)
FROM (
  SELECT TOP (:limit) status
  FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
  WHERE status IN (1, 3) AND status = 1
) AS done
