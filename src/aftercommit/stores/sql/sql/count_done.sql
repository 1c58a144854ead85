-- How many rows are done, counted up to a limit.
SELECT count(*)
FROM (SELECT status FROM {table_by:ended} WHERE status = 1 LIMIT :limit) AS done
