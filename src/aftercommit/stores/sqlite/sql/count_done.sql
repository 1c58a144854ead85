-- How many rows are done, counted up to a limit.
SELECT count(*)
FROM (SELECT status FROM {table} WHERE status IN (1, 3) AND status = 1 LIMIT :limit) AS done
